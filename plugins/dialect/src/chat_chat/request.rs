//! A request, member by member. Only what is listed here is passed on: unknown
//! members, and those that say who is asking (`user`, `metadata` …), are not.

use super::messages;
use crate::pieces::Pieces;
use crate::{scan, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Field, Refusal, Target};

/// Passed on as they are.
const ALWAYS: &[&str] = &["tools", "tool_choice", "response_format"];
/// Passed on unless the catalogue lists the model's parameters and leaves them out.
const USUAL: &[&str] = &["temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"];
/// Passed on where the catalogue lists them.
const LISTED: &[&str] =
    &["top_k", "min_p", "repetition_penalty", "parallel_tool_calls", "chat_template_kwargs"];
/// Mean nothing without tools, and some engines answer 400 to them then.
const OF_TOOLS: &[&str] = &["tools", "tool_choice", "parallel_tool_calls"];
/// Cannot be dropped in silence: without them the figures in the answer would be wrong.
const EXACT: &[&str] = &["logprobs", "top_logprobs", "logit_bias"];

/// The body for a chat provider; `delivered` is an answer so far that it is to continue.
///
/// # Errors
/// What this provider cannot be asked, naming the field.
pub(super) fn body(ask: &Ask, target: &Target<'_>, delivered: Option<&str>) -> Result<Vec<Bytes>, Refusal> {
    let given = shape::given(&ask.stop, target);
    if given.len() < ask.stop.len() && shape::wants_logprobs(ask) {
        // What is cut at a stop sequence here has lost what belongs to each token.
        let most = given.len();
        let sentence = format!("With `logprobs` this model takes at most {most} stop sequences.");
        return Err(Refusal::unsupported("stop", sentence));
    }
    let mut out = Pieces::over(&ask.body);
    out.put(r#"{"model":"#);
    out.string(target.model);
    messages::write(ask, target, delivered, &mut out)?;
    for field in &ask.fields.0 {
        if passes(ask, target, field)? {
            out.byte(b',');
            edited(ask, field, &mut out);
        }
    }
    limits(ask, target, &mut out);
    effort(ask, target, &mut out);
    preset(ask, target, &mut out);
    if ask.stream {
        out.put(r#","stream":true,"stream_options":{"include_usage":true}"#);
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Whether a member goes to this provider as it stands.
fn passes(ask: &Ask, target: &Target<'_>, field: &Field) -> Result<bool, Refusal> {
    let name = &*field.name;
    let Some(value) = ask.value(name) else { return Ok(false) };
    let abilities = target.abilities;
    if OF_TOOLS.contains(&name) && !has_tools(ask) {
        return Ok(false);
    }
    if EXACT.contains(&name) && !matches!(value, b"false" | b"{}") {
        if abilities.accepts(name) || (name == "top_logprobs" && abilities.accepts("logprobs")) {
            return Ok(true);
        }
        let sentence = format!("This model does not support `{name}`.");
        return Err(Refusal::unsupported(name, sentence));
    }
    let plain = name == "response_format" && is_plain_text(value);
    Ok((ALWAYS.contains(&name) && !plain)
        || (USUAL.contains(&name) && shape::takes(abilities, name))
        || (LISTED.contains(&name) && abilities.accepts(name) && !switches_thinking(ask, target, name)))
}

fn has_tools(ask: &Ask) -> bool {
    ask.value("tools").is_some_and(|tools| scan::elements(tools).next().is_some())
}

/// `{"type":"text"}` is what every provider does anyway, and some do not know the word.
fn is_plain_text(format: &[u8]) -> bool {
    scan::member(format, "type").and_then(scan::string).is_some_and(|kind| kind == "text")
}

/// Whether `chat_template_kwargs` is written with the effort instead.
fn switches_thinking(ask: &Ask, target: &Target<'_>, name: &str) -> bool {
    name == "chat_template_kwargs" && is_none(ask) && target.abilities.thinking_switch
}

fn is_none(ask: &Ask) -> bool {
    ask.value("reasoning_effort") == Some(b"\"none\"")
}

/// A member with the ask's edits in it.
fn edited(ask: &Ask, field: &Field, out: &mut Pieces<'_>) {
    messages::edited(ask, field.member.clone(), &mut |bytes| out.raw(bytes));
}

fn limits(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.byte(b',');
        out.string(shape::cap(target.abilities));
        out.byte(b':');
        out.number(max);
    }
    if ask.n > 1 {
        out.put(r#","n":"#);
        out.number(ask.n.into());
    }
    for (at, stop) in shape::given(&ask.stop, target).iter().enumerate() {
        out.put(if at == 0 { r#","stop":["# } else { "," });
        out.string(stop);
    }
    if !shape::given(&ask.stop, target).is_empty() {
        out.byte(b']');
    }
}

/// How hard the model thinks. Without a switch, `none` is as little as possible.
fn effort(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    let Some(field) = ask.fields.get("reasoning_effort").filter(|_| ask.value("reasoning_effort").is_some())
    else {
        return;
    };
    if is_none(ask) && target.abilities.thinking_switch {
        out.put(r#","chat_template_kwargs":{"enable_thinking":false"#);
        let preset = target.preset.iter().find(|(name, _)| &**name == "chat_template_kwargs");
        let preset = || preset.map(|(_, value)| value.as_bytes());
        let own = ask.value("chat_template_kwargs").or_else(preset).unwrap_or_default();
        for (key, value) in scan::members(own).filter(|(key, _)| key != "enable_thinking") {
            out.byte(b',');
            out.string(&key);
            out.byte(b':');
            out.raw(value);
        }
        out.byte(b'}');
    } else if target.abilities.accepts("reasoning_effort") {
        if is_none(ask) {
            out.put(r#","reasoning_effort":"low""#);
        } else {
            out.byte(b',');
            edited(ask, field, out);
        }
    }
}

/// What the client left to the model's preset.
fn preset(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    for (name, value) in target.preset {
        let tokens = matches!(&**name, "max_tokens" | "max_completion_tokens")
            && target.max_tokens.or(ask.max_tokens).is_some();
        if ask.value(name).is_none() && !tokens && !switches_thinking(ask, target, name) {
            out.byte(b',');
            out.string(name);
            out.byte(b':');
            out.put(value);
        }
    }
}
