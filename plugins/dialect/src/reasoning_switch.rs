//! Writer of the reasoning members of a request to a chat provider: the switch for thinking, and the effort.

use crate::body_builder::BodyBuilder;
use crate::json_cursor;
use crate::reasoning_effort::ReasoningEffort;
use penstock_core::{AdjustableMember, AttemptTarget, InferenceRequest, RequestBodyFormat};

/// Returns the value of the switch (`enable_thinking`) to send; `None` if the client requests nothing, or the engine
/// accepts no switch. For an engine that accepts no effort, every effort but `none` becomes `true`.
fn switch_value(target: &AttemptTarget<'_>, effort: ReasoningEffort) -> Option<bool> {
    let abilities = target.capabilities;
    let has_switch = abilities.thinking_switch && target.allows_member(AdjustableMember::ThinkingSwitch);
    let by_level = effort.level.filter(|_| !abilities.accepts_parameter("reasoning_effort")).map(|_| true);
    effort.enabled.or(by_level).filter(|_| has_switch)
}

/// Returns true for the name `chat_template_kwargs` if [`write_reasoning_parameters`] writes this member, together
/// with the switch.
pub(crate) fn is_replaced_by_switch(target: &AttemptTarget<'_>, effort: ReasoningEffort, name: &str) -> bool {
    name == "chat_template_kwargs" && switch_value(target, effort).is_some()
}

/// Writes the switch and the reasoning effort that the engine accepts. If thinking is disabled and the engine has no
/// switch, writes the effort `low`.
pub(crate) fn write_reasoning_parameters(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    out: &mut BodyBuilder<'_>,
) {
    let abilities = target.capabilities;
    if let Some(on) = switch_value(target, effort) {
        out.push_str(r#","chat_template_kwargs":{"enable_thinking":"#);
        out.push_str(if on { "true" } else { "false" });
        let preset = target.preset.iter().find(|(name, _)| &**name == "chat_template_kwargs");
        let preset = || preset.map(|(_, value)| value.as_bytes());
        let listed = abilities.accepts_parameter("chat_template_kwargs");
        let own =
            ask.member_value("chat_template_kwargs").filter(|_| listed).or_else(preset).unwrap_or_default();
        for (key, value) in json_cursor::members(own).filter(|(key, _)| key != "enable_thinking") {
            out.push_byte(b',');
            out.push_json_string(&key);
            out.push_byte(b':');
            out.push_source(value);
        }
        out.push_byte(b'}');
        if !on {
            // No effort is sent with the switch, because it would contradict the switch.
            return;
        }
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
