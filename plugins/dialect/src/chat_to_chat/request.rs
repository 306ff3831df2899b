//! Builder of the request, member by member. It forwards only the members that
//! are listed here or in the table of engine parameters. It drops unknown members
//! and those that identify the user (`user`, `metadata` …).

use super::messages;
use crate::body_builder::BodyBuilder;
use crate::output_constraint::SelectedConstraint;
use crate::reasoning_effort::ReasoningEffort;
use crate::{json_cursor, parameters, reasoning_switch, response_constraints, structured_output};
use bytes::Bytes;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, BodyMember, InferenceRequest};
use penstock_json_scan::json;

/// Members that are forwarded to every provider, with these exceptions: `tools` and `tool_choice` of a request without
/// tools, the default `tool_choice` if the provider refuses it, and a response format that is the default or is written
/// under another name.
const ALWAYS_FORWARDED: &[&str] = &["tools", "tool_choice", "response_format"];
/// Members that are forwarded unless the catalogue lists the model's parameters without them.
const FORWARDED_BY_DEFAULT: &[&str] =
    &["temperature", "top_p", "seed", "frequency_penalty", "presence_penalty"];
/// Members that are forwarded only if the catalogue lists them. The same applies to engine parameters that tune
/// sampling (see `parameters`).
const FORWARDED_IF_LISTED: &[&str] = &["parallel_tool_calls"];
/// Members that are dropped if the request has no tools, because some engines then reject them with status 400.
const TOOL_MEMBERS: &[&str] = &["tools", "tool_choice", "parallel_tool_calls"];
/// Members that the gateway refuses if the offer does not list them. The gateway does not drop them, because the
/// answer would then lack the log probabilities, or ignore the bias.
const REFUSED_IF_UNLISTED: &[&str] = &["logprobs", "top_logprobs", "logit_bias"];

/// Builds the request body for a chat provider; `delivered` is the partial answer that it must continue.
///
/// # Errors
/// Returns an error with the field's name if this provider does not support the request.
pub(super) fn build_request(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let given = response_constraints::upstream_stop_sequences(&ask.stop, target);
    if given.len() < ask.stop.len() && response_constraints::requests_logprobs(ask) {
        // The request is refused: if the gateway itself cuts the text at a stop sequence, the log probabilities no
        // longer match the tokens of the text.
        let most = given.len();
        let sentence = format!("With `logprobs` this model takes at most {most} stop sequences.");
        return Err(ApiError::unsupported("stop", sentence));
    }
    let selected = SelectedConstraint::new(ask, |given| {
        structured_output::accepts_constraint(target.capabilities, given)
    })?;
    let effort = ReasoningEffort::from_chat_request(ask);
    let mut out = BodyBuilder::with_source(&ask.body);
    out.push_str(r#"{"model":"#);
    out.push_json_string(target.model);
    messages::write_messages(ask, target, delivered, &mut out)?;
    for field in &ask.members.0 {
        if !selected.is_redundant(&field.name) && should_forward(ask, target, effort, field)? {
            out.push_byte(b',');
            write_edited_member(ask, field, &mut out);
        }
    }
    structured_output::write_constraints(ask, target, &selected, &mut out)?;
    write_limits(ask, target, &mut out);
    reasoning_switch::write_reasoning_parameters(ask, target, effort, &mut out);
    write_preset(ask, target, effort, &mut out);
    if ask.stream {
        out.push_str(r#","stream":true"#);
        if target.allows_member(AdjustableMember::StreamOptions) {
            out.push_str(r#","stream_options":{"include_usage":true}"#);
        }
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

/// Returns true if a member of the request is forwarded to this provider, with only the edits of the validation.
///
/// # Errors
/// Returns `Unsupported` for a member that the offer does not support and that must not be dropped.
fn should_forward(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    field: &BodyMember,
) -> Result<bool, ApiError> {
    let name = &*field.name;
    let Some(value) = ask.member_value(name) else { return Ok(false) };
    let abilities = target.capabilities;
    if TOOL_MEMBERS.contains(&name) && !has_tools(ask) {
        return Ok(false);
    }
    if is_refused_tool_member(target, name, value) {
        return Ok(false);
    }
    if REFUSED_IF_UNLISTED.contains(&name) && value != b"false" && !json_cursor::is_empty_object(value) {
        if abilities.accepts_parameter(name)
            || (name == "top_logprobs" && abilities.accepts_parameter("logprobs"))
        {
            return Ok(true);
        }
        let sentence = format!("This model does not support `{name}`.");
        return Err(ApiError::unsupported(name, sentence));
    }
    if ALWAYS_FORWARDED.contains(&name) {
        let is_replaced = || is_plain_text(value) || structured_output::replaces_response_format(target);
        return Ok(name != "response_format" || !is_replaced());
    }
    if structured_output::is_replaced_by_format(target, name) && structured_output::has_response_format(ask) {
        return Ok(false);
    }
    if FORWARDED_BY_DEFAULT.contains(&name) {
        return Ok(response_constraints::accepts_sampling_parameter(abilities, name));
    }
    if FORWARDED_IF_LISTED.contains(&name) {
        return Ok(abilities.accepts_parameter(name));
    }
    if structured_output::is_translated_constraint(name)
        || reasoning_switch::is_replaced_by_switch(ask, target, effort, name)
    {
        return Ok(false);
    }
    parameters::should_forward(abilities, name, value)
}

/// Returns true for a member about tool calls that the provider has refused, and that the answer does not need: the
/// default choice, and the limit to one call, which the gateway enforces.
fn is_refused_tool_member(target: &AttemptTarget<'_>, name: &str, value: &[u8]) -> bool {
    match name {
        "tool_choice" => {
            !target.allows_member(AdjustableMember::ToolChoice) && json::json_string_equals(value, "auto")
        }
        "parallel_tool_calls" => !target.allows_member(AdjustableMember::ParallelTools),
        _ => false,
    }
}

fn has_tools(ask: &InferenceRequest) -> bool {
    ask.member_value("tools").is_some_and(|tools| json_cursor::elements(tools).next().is_some())
}

/// Returns true for the response format `{"type":"text"}`. It is the default of every provider, and some reject it.
fn is_plain_text(format: &[u8]) -> bool {
    json_cursor::member_value(format, "type")
        .and_then(json_cursor::parse_string)
        .is_some_and(|kind| kind == "text")
}

/// Writes a member with the request's edits applied.
fn write_edited_member(ask: &InferenceRequest, field: &BodyMember, out: &mut BodyBuilder<'_>) {
    messages::for_each_edited_slice(ask, field.member_range.clone(), &mut |bytes| out.push_source(bytes));
}

/// Writes the limit on generated tokens, the number of choices if it is above 1, and as many stop sequences as the
/// provider accepts.
fn write_limits(ask: &InferenceRequest, target: &AttemptTarget<'_>, out: &mut BodyBuilder<'_>) {
    if let Some(max) = target.max_tokens.or(ask.max_tokens) {
        out.push_byte(b',');
        out.push_json_string(response_constraints::token_cap_name(target));
        out.push_byte(b':');
        out.push_integer(max);
    }
    if ask.n > 1 {
        out.push_str(r#","n":"#);
        out.push_integer(ask.n.into());
    }
    for (at, stop) in response_constraints::upstream_stop_sequences(&ask.stop, target).iter().enumerate() {
        out.push_str(if at == 0 { r#","stop":["# } else { "," });
        out.push_json_string(stop);
    }
    if !response_constraints::upstream_stop_sequences(&ask.stop, target).is_empty() {
        out.push_byte(b']');
    }
}

/// Writes the members of the model's preset that the client did not set.
fn write_preset(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: ReasoningEffort,
    out: &mut BodyBuilder<'_>,
) {
    for (name, value) in response_constraints::preset_members(ask, target) {
        let thought = name == "reasoning_effort" && effort != ReasoningEffort::default();
        if !thought && !reasoning_switch::is_replaced_by_switch(ask, target, effort, name) {
            out.push_byte(b',');
            out.push_json_string(name);
            out.push_byte(b':');
            out.push_source(value);
        }
    }
}
