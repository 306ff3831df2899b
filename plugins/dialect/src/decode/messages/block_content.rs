//! Content of blocks, in a stream and in a buffered message.

use super::malformed_error;
use crate::body_builder::{shared_slice, write_escaped_json};
use crate::decode::MAX_TOOL_NAME_BYTES;
use crate::decode::chat::generate_call_id;
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Returns a string of an event as text that shares the memory of the event; an absent string is empty.
pub(super) fn event_text(data: &Bytes, value: Option<&[u8]>) -> Result<EscapedText, UpstreamError> {
    let Some(value) = value.filter(|value| !json_cursor::is_null(value)) else {
        return Ok(EscapedText::default());
    };
    let inside = json_cursor::string_body(value).ok_or_else(malformed_error)?;
    let shared = shared_slice(data, inside).unwrap_or_else(|| Bytes::copy_from_slice(inside));
    EscapedText::from_json(shared).ok_or_else(malformed_error)
}

/// Returns the type of a content block.
pub(super) fn block_type(block: &[u8]) -> Result<std::borrow::Cow<'_, str>, UpstreamError> {
    json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).ok_or_else(malformed_error)
}

pub(super) fn push_text(text: EscapedText, events: &mut Vec<AnswerEvent>) {
    if !text.is_empty() {
        events.push(AnswerEvent::Text { choice: 0, text, logprobs: None });
    }
}

/// Returns the event of a block of encrypted reasoning; `None` if it is empty.
pub(super) fn sealed_event(block: &[u8]) -> Option<AnswerEvent> {
    let data = json_cursor::member_value(block, "data").and_then(json_cursor::string_body)?;
    (!data.is_empty()).then_some(AnswerEvent::SealedReasoning { bytes: data.len() })
}

/// Returns the id and the name of tool call number `tool`, both not empty and of limited length. An id that is absent
/// or empty is generated.
///
/// # Errors
/// Returns `ModelOutput` if the model gave no name or one that is too long, `Malformed` for an id that is too long and
/// for values that are no strings.
pub(super) fn tool_id_and_name(
    data: &Bytes,
    block: &[u8],
    seed: &str,
    tool: u32,
) -> Result<(EscapedText, EscapedText), UpstreamError> {
    let id = event_text(data, json_cursor::member_value(block, "id"))?;
    let id = if id.is_empty() { EscapedText::new(&generate_call_id(seed, 0, tool)) } else { id };
    let name = event_text(data, json_cursor::member_value(block, "name"))?;
    if name.is_empty() || name.escaped().len() > MAX_TOOL_NAME_BYTES {
        return Err(UpstreamError::invalid_model_output());
    }
    if id.escaped().len() > MAX_TOOL_NAME_BYTES {
        return Err(malformed_error());
    }
    Ok((id, name))
}

/// Returns the input object of a tool call as escaped text.
pub(super) fn input_as_text(input: &[u8]) -> Result<EscapedText, UpstreamError> {
    let mut escaped = Vec::with_capacity(input.len() + 16);
    write_escaped_json(input, &mut escaped);
    EscapedText::from_json(Bytes::from(escaped)).ok_or_else(malformed_error)
}
