//! Writer of the reasoning members of a request to a chat provider: the switches for thinking, and the effort.

use crate::body_builder::BodyBuilder;
use crate::json_cursor;
use crate::reasoning_effort::{self, ReasoningEffort};
use penstock_core::{AdjustableMember, AttemptTarget, Dialect, InferenceRequest, RequestBodyFormat};

/// Parameter that enables or disables thinking.
const ENABLE_THINKING: &str = "enable_thinking";
/// Object with the parameters of the engine's chat template.
const TEMPLATE_KWARGS: &str = "chat_template_kwargs";
/// Members of `chat_template_kwargs` that enable or disable thinking.
const TEMPLATE_SWITCHES: [&str; 2] = [ENABLE_THINKING, "thinking"];

/// Returns the value of the switch (`enable_thinking`) to send; `None` if the client requests nothing, or the engine
/// accepts no switch. For an engine that accepts no effort, every effort but `none` becomes `true`.
fn switch_value(target: &AttemptTarget<'_>, effort: ReasoningEffort) -> Option<bool> {
    let abilities = target.capabilities;
    let has_switch = abilities.thinking_switch && target.allows_member(AdjustableMember::ThinkingSwitch);
    let by_level = effort.level.filter(|_| !abilities.accepts_parameter("reasoning_effort")).map(|_| true);
    effort.enabled.or(by_level).filter(|_| has_switch)
}

/// Returns true if the client's reasoning effort enables reasoning, false if it disables it; `None` if the client
/// specifies nothing.
fn is_enabled(effort: ReasoningEffort) -> Option<bool> {
    effort.enabled.or(effort.level.map(|_| true))
}

/// Returns the value of the top-level member `enable_thinking` to send to an offer that lists it; `None` if the client
/// requests nothing. A parameter with precedence over the client's own `enable_thinking` replaces its value. Without
/// an own `enable_thinking`, the member is the switch of an offer that has no other one.
fn top_level_value(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
) -> Option<bool> {
    let abilities = target.capabilities;
    if !abilities.accepts_parameter(ENABLE_THINKING) {
        return None;
    }
    match ask.member_value(ENABLE_THINKING) {
        Some(own @ (b"true" | b"false")) => is_enabled(effort).or(Some(own == b"true")),
        Some(_) => None,
        None if switch_value(target, effort).is_some() => None,
        None => {
            let by_level = effort.level.filter(|_| !abilities.accepts_parameter("reasoning_effort"));
            let value = effort.enabled.or(by_level.map(|_| true));
            value.filter(|_| target.allows_member(AdjustableMember::ThinkingSwitch))
        }
    }
}

/// Returns the value that the switches inside the client's `chat_template_kwargs` must have, if the offer lists this
/// member and one of the switches contradicts a parameter with precedence.
fn corrected_template_value(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
) -> Option<bool> {
    let own = ask.member_value(TEMPLATE_KWARGS)?;
    let is_listed = target.capabilities.accepts_parameter(TEMPLATE_KWARGS);
    let on = is_enabled(effort).filter(|_| is_listed && switch_value(target, effort).is_none())?;
    let opposite: &[u8] = if on { b"false" } else { b"true" };
    json_cursor::members(own)
        .any(|(key, value)| TEMPLATE_SWITCHES.contains(&&*key) && value == opposite)
        .then_some(on)
}

/// Returns true if [`write_reasoning_parameters`] writes the member of this name.
pub(crate) fn is_replaced_by_switch(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    name: &str,
) -> bool {
    match name {
        TEMPLATE_KWARGS => {
            switch_value(target, effort).is_some() || corrected_template_value(ask, target, effort).is_some()
        }
        ENABLE_THINKING => top_level_value(ask, target, effort).is_some(),
        _ => false,
    }
}

/// Writes the switch of the engine inside `chat_template_kwargs`, together with the other members of the client or of
/// the preset.
fn write_template_switch(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    on: bool,
    out: &mut BodyBuilder<'_>,
) {
    out.push_str(r#","chat_template_kwargs":{"enable_thinking":"#);
    out.push_str(bool_word(on));
    let preset = target.preset.iter().find(|(name, _)| &**name == TEMPLATE_KWARGS);
    let preset = || preset.map(|(_, value)| value.as_bytes());
    let listed = target.capabilities.accepts_parameter(TEMPLATE_KWARGS);
    let own = ask.member_value(TEMPLATE_KWARGS).filter(|_| listed).or_else(preset).unwrap_or_default();
    for (key, value) in json_cursor::members(own).filter(|(key, _)| key != ENABLE_THINKING) {
        out.push_byte(b',');
        out.push_json_string(&key);
        out.push_byte(b':');
        match matches!(value, b"true" | b"false") && TEMPLATE_SWITCHES.contains(&&*key) {
            true => out.push_str(bool_word(on)),
            false => out.push_source(value),
        }
    }
    out.push_byte(b'}');
}

const fn bool_word(on: bool) -> &'static str {
    if on { "true" } else { "false" }
}

/// Writes the switches for thinking and the reasoning effort that the engine accepts. If thinking is disabled and the
/// engine has no switch, writes the effort `low`.
pub(crate) fn write_reasoning_parameters(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    out: &mut BodyBuilder<'_>,
) {
    let abilities = target.capabilities;
    let switch = switch_value(target, effort);
    if let Some(on) = switch.or_else(|| corrected_template_value(ask, target, effort)) {
        write_template_switch(ask, target, on, out);
    }
    let top_level = top_level_value(ask, target, effort);
    if let Some(on) = top_level {
        out.push_str(r#","enable_thinking":"#);
        out.push_str(bool_word(on));
    }
    // No effort is sent with a switch that is off, because it would contradict the switch. Responses providers also have
    // an effort for that.
    let is_off = top_level == Some(false) || has_zero_budget(ask, target, effort);
    if switch == Some(false) || is_off && target.dialect != Dialect::Responses {
        return;
    }
    let word = match (effort.enabled, effort.level) {
        (Some(false), _) => "low",
        (_, Some(level)) => level.chat_name(),
        (_, None) => return,
    };
    // The client may have expressed the effort by another parameter than `reasoning_effort`. The effort is then
    // omitted if the provider has rejected `reasoning_effort`.
    let is_own = ask.dialect.request_body_format() == RequestBodyFormat::Chat
        && ask.member_value("reasoning_effort").is_some();
    if abilities.accepts_parameter("reasoning_effort")
        && (is_own || target.allows_member(AdjustableMember::Effort))
    {
        out.push_str(r#","reasoning_effort":""#);
        out.push_str(word);
        out.push_byte(b'"');
    }
}

/// Returns true if thinking is disabled and the offer gets a budget of 0 reasoning tokens.
fn has_zero_budget(ask: &InferenceRequest, target: &AttemptTarget<'_>, effort: ReasoningEffort) -> bool {
    let is_sent = |name: &str, value: &[u8]| {
        reasoning_effort::is_zero_reasoning_budget(name, value) && target.capabilities.accepts_parameter(name)
    };
    effort.enabled == Some(false)
        && ask
            .members
            .0
            .iter()
            .any(|field| ask.member_value(&field.name).is_some_and(|value| is_sent(&field.name, value)))
}
