//! Decoder of a buffered message. It returns the same events as for a stream.

use super::block_content::{
    block_type, event_text, input_as_text, push_text, sealed_event, tool_id_and_name,
};
use super::usage_counter::UsageCounter;
use super::{finish_event, malformed_error};
use crate::classify;
use crate::decode::MAX_TOOL_CALLS;
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Appends the events of a buffered message. `seed` is the seed of generated tool call ids. An object without `type` is
/// a message if it has a list of content.
///
/// # Errors
/// Returns the errors of [`DialectDecoder::push`](crate::decode::DialectDecoder::push); `Malformed` also if the body is
/// no message.
pub fn decode_message(body: Bytes, seed: &str, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
    let body = without_lone_surrogates(body);
    let message = json::trim(&body);
    let content =
        json_cursor::member_value(message, "content").filter(|content| json_cursor::is_array(content));
    match &*json_cursor::member_value(message, "type").and_then(json_cursor::parse_string).unwrap_or_default()
    {
        "message" => {}
        "" if content.is_some() => {}
        "error" => return Err(classify::classify_in_band_error(message)),
        _ => return Err(malformed_error()),
    }
    events.push(AnswerEvent::Start);
    let mut tool = 0;
    for block in json_cursor::elements(content.ok_or_else(malformed_error)?) {
        push_block(&body, block, (&mut tool, seed), events)?;
    }
    for (key, value) in json_cursor::members(message) {
        events.extend(match &*key {
            "energy" => usage::parse_energy(value).map(AnswerEvent::Energy),
            "impact" => usage::parse_impact_energy(value).map(AnswerEvent::Energy),
            _ => None,
        });
    }
    if let Some(usage) =
        json_cursor::member_value(message, "usage").filter(|usage| json_cursor::is_object(usage))
    {
        let mut count = UsageCounter::default();
        count.merge(usage);
        events.extend(count.reported_usage().map(AnswerEvent::Usage));
    }
    events.extend(finish_event(&body, message)?);
    events.push(AnswerEvent::End);
    Ok(())
}

/// Returns JSON in which the escape of each lone surrogate is replaced by that of U+FFFD.
pub(crate) fn without_lone_surrogates(json: Bytes) -> Bytes {
    match json::repair_surrogates(&json) {
        Some(repaired) => Bytes::from(repaired),
        None => json,
    }
}

/// Appends the events of a content block; `tool` is the number of tool calls before it.
fn push_block(
    body: &Bytes,
    block: &[u8],
    (tool, seed): (&mut u32, &str),
    events: &mut Vec<AnswerEvent>,
) -> Result<(), UpstreamError> {
    match &*block_type(block)? {
        "text" => {
            push_text(event_text(body, json_cursor::member_value(block, "text"))?, events);
        }
        "thinking" => {
            let text = event_text(body, json_cursor::member_value(block, "thinking"))?;
            let signature = Some(event_text(body, json_cursor::member_value(block, "signature"))?)
                .filter(|seal| !seal.is_empty());
            if !text.is_empty() || signature.is_some() {
                events.push(AnswerEvent::Reasoning { choice: 0, text, signature });
            }
        }
        "tool_use" => {
            let (id, name) = tool_id_and_name(body, block, seed, *tool)?;
            if *tool as usize >= MAX_TOOL_CALLS {
                return Err(UpstreamError::invalid_model_output());
            }
            events.push(AnswerEvent::ToolCallStart { choice: 0, tool: *tool, id, name });
            let input = json_cursor::member_value(block, "input").unwrap_or(b"{}");
            if !json_cursor::is_object(input) {
                return Err(malformed_error());
            }
            events.push(AnswerEvent::ToolCallArguments {
                choice: 0,
                tool: *tool,
                fragment: input_as_text(input)?,
            });
            *tool += 1;
        }
        "redacted_thinking" => events.extend(sealed_event(block)),
        _ => {}
    }
    Ok(())
}
