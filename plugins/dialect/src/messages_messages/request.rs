//! The client's own members, as they came, in the client's order. Only a conversation that the provider does not
//! take that way is told anew.

use super::said::around;
use super::turns::{self, Conversation};
use crate::pieces::Pieces;
use crate::{chat_messages, parameters, scan, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Refusal, Target};

/// What a provider is told. The rest says who the client's user is, or speaks
/// to the vendor's own servers.
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
/// Of these, what some models do not take.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];

/// The body for a messages provider; `delivered` is an answer so far that it is to continue.
///
/// # Errors
/// MCP servers; a continuation that the provider does not do.
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
        // The client's own is within its dialect, the operator's may be meant for the other one.
        let Some(value) = shape::sampling(name, value) else { continue };
        out.byte(b',');
        out.string(name);
        out.byte(b':');
        out.raw(value);
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Whether the provider is told this member of the ask.
fn passes(ask: &Ask, target: &Target<'_>, name: &str) -> bool {
    match name {
        "tools" | "tool_choice" => has_tools(ask),
        "stop_sequences" => !enforced_stops(ask, target) || !shape::given(&ask.stop, target).is_empty(),
        _ if SAMPLING.contains(&name) => shape::takes(target.abilities, name),
        _ => PASSED.contains(&name),
    }
}

/// Parameters of engines, where the offer lists them.
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

/// Whether each schema begins with its type, as nearly all do: looked at before all tools are walked over.
fn are_typed(tools: &[u8]) -> bool {
    let count = |text: &[u8]| memchr::memmem::find_iter(tools, text).count();
    count(br#""input_schema":{"type":"#) == count(br#""input_schema""#) && count(br"\u") == 0
}

/// Tools whose schemas have a type.
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

/// A choice means nothing without tools, and the dialect answers 400 to it then.
fn has_tools(ask: &Ask) -> bool {
    ask.value("tools").is_some_and(|tools| scan::elements(tools).next().is_some())
}

/// Whether there are more stop sequences than the provider takes.
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
