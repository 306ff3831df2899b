//! Builder of the request: forwards the client's members unchanged and in the client's order. Only a conversation that
//! the provider would reject is rewritten.

use super::said::around;
use super::turns::{self, Conversation};
use crate::pieces::Pieces;
use crate::{chat_messages, parameters, scan, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Refusal, Target};

/// Members that are forwarded to a provider. The others identify the client's user or are meant
/// for the vendor's own servers.
const PASSED: [&str; 14] = [
    "system",
    "messages",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "thinking",
    "output_config",
    "output_format",
    "cache_control",
    "max_tokens",
    "stream",
];
/// Sampling members, which some models reject.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

/// Builds the request body for a messages provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns `Unsupported` for MCP servers, and for a continuation that the provider does not support.
pub(super) fn body(ask: &Ask, target: &Target<'_>, delivered: Option<&str>) -> Result<Vec<Bytes>, Refusal> {
    if ask.value("mcp_servers").is_some_and(|servers| scan::elements(servers).next().is_some()) {
        return Err(Refusal::unsupported("mcp_servers", "The gateway does not call MCP servers."));
    }
    if delivered.is_some() && target.continuation().is_none() {
        return Err(Refusal::unsupported("messages", "This provider does not continue an answer."));
    }
    let told = Conversation::of(ask, target);
    let engine = engine(ask, target)?;
    let mut out = Pieces::over(&ask.body);
    out.put(r#"{"model":"#);
    out.string(target.model);
    if let Some(told) = &told {
        told.write(delivered, &mut out);
    }
    for field in &ask.fields.0 {
        let name = &*field.name;
        let told = told.is_some() && matches!(name, "system" | "messages");
        let Some(value) = ask.value(name).filter(|_| !told && passes(ask, target, name)) else { continue };
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        match (name, target.max_tokens, delivered) {
            ("max_tokens", Some(max), _) => out.number(max),
            ("stop_sequences", ..) if enforced_stops(ask, target) => stops(ask, target, &mut out),
            ("tools", ..) if !are_typed(value) => tools(value, &mut out),
            ("messages", _, Some(delivered)) => {
                out.raw(value.strip_suffix(b"]").unwrap_or(value));
                turns::continuation(delivered, &mut out);
                out.byte(b']');
            }
            _ => out.raw(value),
        }
    }
    for (name, value) in engine {
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        out.raw(value);
    }
    for (name, value) in shape::preset(ask, target) {
        // The client's value is valid in its dialect; that of the operator may be meant for the chat dialect.
        let Some(value) = shape::sampling(name, value) else { continue };
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        out.raw(value);
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Returns true if this member of the request is forwarded to the provider.
fn passes(ask: &Ask, target: &Target<'_>, name: &str) -> bool {
    match name {
        "tools" | "tool_choice" => has_tools(ask),
        "stop_sequences" => !enforced_stops(ask, target) || !shape::given(&ask.stop, target).is_empty(),
        _ if SAMPLING.contains(&name) => shape::takes(target.abilities, name),
        _ => PASSED.contains(&name),
    }
}

/// Returns the engine parameters of the request that the offer lists.
fn engine<'a>(ask: &'a Ask, target: &Target<'_>) -> Result<Vec<(&'a str, &'a [u8])>, Refusal> {
    let mut passed = Vec::new();
    for field in &ask.fields.0 {
        let name = &*field.name;
        let Some(value) = ask.value(name).filter(|_| !PASSED.contains(&name)) else { continue };
        if parameters::passes(target.abilities, name, value)? {
            passed.push((name, value));
        }
    }
    Ok(passed)
}

/// Returns true if every tool schema begins with its type, as nearly all do: a fast check before parsing the tools.
fn are_typed(tools: &[u8]) -> bool {
    let count = |text: &[u8]| memchr::memmem::find_iter(tools, text).count();
    count(br#""input_schema":{"type":"#) == count(br#""input_schema""#) && count(br"\u") == 0
}

/// Writes the tools and adds a missing type to their schemas.
fn tools(tools: &[u8], out: &mut Pieces<'_>) {
    for (at, tool) in scan::elements(tools).enumerate() {
        out.byte(if at == 0 { b'[' } else { b',' });
        let schema = scan::member(tool, "input_schema").unwrap_or_default();
        match around(tool, schema) {
            Some((before, after)) if !schema.is_empty() => {
                out.raw(before);
                chat_messages::schema(schema, out);
                out.raw(after);
            }
            _ => out.raw(tool),
        }
    }
    out.byte(b']');
}

/// Returns true if the request has tools; without them providers answer 400 to a tool choice.
fn has_tools(ask: &Ask) -> bool {
    ask.value("tools").is_some_and(|tools| scan::elements(tools).next().is_some())
}

/// Returns true if the request has more stop sequences than the provider accepts.
pub(super) fn enforced_stops(ask: &Ask, target: &Target<'_>) -> bool {
    target.abilities.max_stop.is_some_and(|most| ask.stop.len() > most)
}

fn stops(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    out.byte(b'[');
    for (at, stop) in ask.stop.iter().take(target.abilities.max_stop.unwrap_or(usize::MAX)).enumerate() {
        if at > 0 {
            out.byte(b',');
        }
        out.string(stop);
    }
    out.byte(b']');
}
