//! Builder of the request, member by member. It forwards only the members that
//! are listed here or in the table of engine parameters. It drops unknown members
//! and those that identify the user (`user`, `metadata` …).

use super::messages;
use crate::effort::Effort;
use crate::pieces::Pieces;
use crate::{form, parameters, scan, shape};
use bytes::Bytes;
use penstock_contract::{Ask, Extra, Field, Refusal, Target};

/// Members that are always forwarded unchanged.
const ALWAYS: &[&str] = &["tools", "tool_choice", "response_format"];
/// Members that are forwarded unless the catalogue lists the model's parameters without them.
const USUAL: &[&str] = &["temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"];
/// Members that are forwarded only if the catalogue lists them, like parameters that tune sampling.
const LISTED: &[&str] = &["parallel_tool_calls"];
/// Members that are read as reasoning effort and not forwarded under these names.
const EFFORTS: &[&str] = &["enable_thinking", "thinking_budget"];
/// Members without a meaning if there are no tools; some engines answer 400 to them in that case.
const OF_TOOLS: &[&str] = &["tools", "tool_choice", "parallel_tool_calls"];
/// Members that must not be dropped silently, because the figures of the answer would be incorrect without them.
const EXACT: &[&str] = &["logprobs", "top_logprobs", "logit_bias"];

/// Builds the request body for a chat provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if this provider does not support the request.
pub(super) fn body(ask: &Ask, target: &Target<'_>, delivered: Option<&str>) -> Result<Vec<Bytes>, Refusal> {
    let given = shape::given(&ask.stop, target);
    if given.len() < ask.stop.len() && shape::wants_logprobs(ask) {
        // Text that the gateway cuts at a stop sequence cannot be assigned to tokens and their log probabilities.
        let most = given.len();
        let sentence = format!("With `logprobs` this model takes at most {most} stop sequences.");
        return Err(Refusal::unsupported("stop", sentence));
    }
    let effort = Effort::of(ask);
    let mut out = Pieces::over(&ask.body);
    out.put(r#"{"model":"#);
    out.string(target.model);
    messages::write(ask, target, delivered, &mut out)?;
    for field in &ask.fields.0 {
        if passes(ask, target, effort, field)? {
            out.byte(b',');
            edited(ask, field, &mut out);
        }
    }
    form::write(ask, target.abilities, &mut out)?;
    limits(ask, target, &mut out);
    think(ask, target, effort, &mut out);
    preset(ask, target, effort, &mut out);
    if ask.stream {
        out.put(r#","stream":true"#);
        if target.says(Extra::StreamOptions) {
            out.put(r#","stream_options":{"include_usage":true}"#);
        }
    }
    out.byte(b'}');
    Ok(out.finish())
}

/// Returns true if a member is forwarded to this provider unchanged.
fn passes(ask: &Ask, target: &Target<'_>, effort: Effort, field: &Field) -> Result<bool, Refusal> {
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
    if ALWAYS.contains(&name) {
        return Ok(name != "response_format" || !is_plain_text(value));
    }
    if USUAL.contains(&name) {
        return Ok(shape::takes(abilities, name));
    }
    if LISTED.contains(&name) {
        return Ok(abilities.accepts(name));
    }
    if form::is_form(name) || EFFORTS.contains(&name) || switches_thinking(target, effort, name) {
        return Ok(false);
    }
    parameters::passes(abilities, name, value)
}

fn has_tools(ask: &Ask) -> bool {
    ask.value("tools").is_some_and(|tools| scan::elements(tools).next().is_some())
}

/// Returns true for the format `{"type":"text"}`, the default of every provider, which some of them reject.
fn is_plain_text(format: &[u8]) -> bool {
    scan::member(format, "type").and_then(scan::string).is_some_and(|kind| kind == "text")
}

/// Returns true for `chat_template_kwargs` if it is written together with the effort instead.
fn switches_thinking(target: &Target<'_>, effort: Effort, name: &str) -> bool {
    name == "chat_template_kwargs" && effort.switch.is_some() && has_switch(target)
}

/// Returns true if the engine accepts a switch for thinking.
fn has_switch(target: &Target<'_>) -> bool {
    target.abilities.thinking_switch && target.says(Extra::ThinkingSwitch)
}

/// Writes a member with the request's edits applied.
fn edited(ask: &Ask, field: &Field, out: &mut Pieces<'_>) {
    messages::edited(ask, field.member.clone(), &mut |bytes| out.raw(bytes));
}

fn limits(ask: &Ask, target: &Target<'_>, out: &mut Pieces<'_>) {
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.byte(b',');
        out.string(shape::cap(target));
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

/// Writes the thinking switch and the reasoning effort. Without a switch, off becomes the effort `low`.
fn think(ask: &Ask, target: &Target<'_>, effort: Effort, out: &mut Pieces<'_>) {
    let abilities = target.abilities;
    if let Some(on) = effort.switch.filter(|_| has_switch(target)) {
        out.put(r#","chat_template_kwargs":{"enable_thinking":"#);
        out.put(if on { "true" } else { "false" });
        let preset = target.preset.iter().find(|(name, _)| &**name == "chat_template_kwargs");
        let preset = || preset.map(|(_, value)| value.as_bytes());
        let listed = abilities.accepts("chat_template_kwargs");
        let own = ask.value("chat_template_kwargs").filter(|_| listed).or_else(preset).unwrap_or_default();
        for (key, value) in scan::members(own).filter(|(key, _)| key != "enable_thinking") {
            out.byte(b',');
            out.string(&key);
            out.byte(b':');
            out.raw(value);
        }
        out.byte(b'}');
        if !on {
            return;
        }
    }
    let word = match (effort.switch, effort.level) {
        (Some(false), _) => "low",
        (_, Some(level)) => level.chat_word(),
        (_, None) => return,
    };
    if abilities.accepts("reasoning_effort") {
        out.put(r#","reasoning_effort":""#);
        out.put(word);
        out.byte(b'"');
    }
}

/// Writes the members of the model's preset that the client did not set.
fn preset(ask: &Ask, target: &Target<'_>, effort: Effort, out: &mut Pieces<'_>) {
    for (name, value) in shape::preset(ask, target) {
        let thought = name == "reasoning_effort" && effort != Effort::default();
        if !thought && !switches_thinking(target, effort, name) {
            out.byte(b',');
            out.string(name);
            out.byte(b':');
            out.raw(value);
        }
    }
}
