//! Conversion of a request body for a chat provider to one for a responses provider.

use super::members::{MemberConversion, MembersToConvert, member_treatment};
use super::{input, tools};
use crate::body_builder::BodyBuilder;
use crate::reasoning_effort::{effort_and_replacement, is_reasoning_off};
use crate::{json_cursor, structured_output};
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, InferenceRequest, ReasoningDisplay, RequestBodyFormat,
    ThinkingDisplay,
};
use penstock_json_scan::json;

/// Converts a request body; `chat` is the body that a chat provider would get.
///
/// The request says `store: false` unless the provider rejects that member: the gateway sends the whole conversation
/// with each request, so the provider need not store anything.
///
/// # Errors
/// Returns an error with the field's name if a member cannot be expressed.
pub(super) fn convert_chat_body(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    chat: &Bytes,
) -> Result<Vec<Bytes>, ApiError> {
    if ask.n > 1 {
        return Err(ApiError::unsupported("n", "n: this model's provider gives one answer at a time."));
    }
    let mut out = BodyBuilder::with_source(chat);
    out.push_byte(b'{');
    let mut found = MembersToConvert::default();
    let mut is_first = true;
    for (name, value) in json_cursor::members(chat) {
        let name = match member_treatment(&name, target.capabilities) {
            MemberConversion::Dropped => continue,
            MemberConversion::Converted => {
                found.record_value(&name, value);
                continue;
            }
            MemberConversion::Renamed(other) => other,
            MemberConversion::Unchanged => &name,
        };
        out.push_str(if std::mem::take(&mut is_first) { "" } else { "," });
        out.push_json_string(name);
        out.push_byte(b':');
        out.push_source(value);
    }
    let earlier = ask.responses.as_ref().map(|details| &details.earlier_messages[..]).unwrap_or_default();
    input::write_input(found.messages, earlier, target, &mut out)?;
    tools::write_tools(found.tools, found.tool_choice, target, &mut out)?;
    write_reasoning(ask, target, found.effort, &mut out);
    write_text(found.format, found.verbosity, &mut out);
    if found.logprobs == Some(b"true") {
        out.push_str(r#","include":["message.output_text.logprobs"]"#);
    }
    if target.allows_member(AdjustableMember::Store) {
        out.push_str(r#","store":false"#);
    }
    out.push_byte(b'}');
    Ok(out.finish())
}

/// Writes the reasoning effort, and requests a summary if the client wants to see reasoning: vendors hide it otherwise.
/// Both are omitted if the provider has rejected their members, except an effort that a chat client set as
/// `reasoning_effort`, or a responses client as `reasoning.effort`.
fn write_reasoning(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    effort: Option<&[u8]>,
    out: &mut BodyBuilder<'_>,
) {
    let allows_object = target.allows_member(AdjustableMember::ReasoningObject);
    let is_own_effort = ask.dialect.request_body_format() == RequestBodyFormat::Chat
        && ask.member_value("reasoning_effort").is_some();
    let effort = effort.filter(|_| allows_object || is_own_effort);
    let is_shown = ask.thinking == ThinkingDisplay::Shown
        || ask.responses.as_ref().is_some_and(|details| details.reasoning == ReasoningDisplay::Summary);
    let summary = is_shown && allows_object && target.allows_member(AdjustableMember::ReasoningSummary);
    if effort.is_none() && !summary {
        return;
    }
    out.push_str(r#","reasoning":{"#);
    if let Some(effort) = effort {
        out.push_str(r#""effort":"#);
        // The chat body has a replacement for an effort that only the responses dialect has. The original effort is
        // written here, unless the provider has rejected it.
        let allows_exact = target.allows_member(AdjustableMember::ExactEffort);
        let exact = effort_and_replacement(ask).filter(|_| allows_exact);
        match exact.filter(|(_, replaced)| json::json_string_equals(effort, replaced)) {
            Some((word, _)) => out.push_json_string(word),
            None if allows_exact && is_reasoning_off(ask) => out.push_json_string("none"),
            None => out.push_source(effort),
        }
    }
    if summary {
        out.push_str(if effort.is_some() { "," } else { "" });
        out.push_str(r#""summary":"auto""#);
    }
    out.push_byte(b'}');
}

/// Writes the format of the answer and the verbosity.
fn write_text(format: Option<&[u8]>, verbosity: Option<&[u8]>, out: &mut BodyBuilder<'_>) {
    if format.is_none() && verbosity.is_none() {
        return;
    }
    out.push_str(r#","text":{"#);
    if let Some(format) = format {
        out.push_str(r#""format":"#);
        write_format(format, out);
    }
    if let Some(verbosity) = verbosity {
        out.push_str(if format.is_some() { "," } else { "" });
        out.push_str(r#""verbosity":"#);
        out.push_source(verbosity);
    }
    out.push_byte(b'}');
}

/// Writes the format of the answer. A schema is one level higher than in the chat dialect, and needs a name. The format
/// `json_object` with a schema, which some engines accept, becomes `json_schema`: here `json_object` has no schema.
fn write_format(format: &[u8], out: &mut BodyBuilder<'_>) {
    let named = json_cursor::member_value(format, "json_schema");
    if let Some(named) = named.filter(|named| json_cursor::member_value(named, "name").is_some()) {
        out.push_str(r#"{"type":"json_schema""#);
        for (name, value) in json_cursor::members(named).filter(|(name, _)| name != "type") {
            out.push_byte(b',');
            out.push_json_string(&name);
            out.push_byte(b':');
            out.push_source(value);
        }
        return out.push_byte(b'}');
    }
    if let Some(schema) = structured_output::schema_of_format(format) {
        out.push_str(r#"{"type":"json_schema","name":"output","schema":"#);
        out.push_source(schema);
    } else {
        out.push_str(r#"{"type":"#);
        out.push_source(json_cursor::member_value(format, "type").unwrap_or(br#""text""#));
    }
    out.push_byte(b'}');
}
