//! Reasons for the end of a message.

use super::{event_text, malformed_error};
use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::{FinishReason, UpstreamError, UpstreamErrorKind};

/// Parses a `stop_reason`, including the spellings of engines: a truncated answer must not look complete.
///
/// # Errors
/// Returns `InBandError` if the engine reports that it aborted.
pub(crate) fn parse_stop_reason(reason: &str) -> Result<FinishReason, UpstreamError> {
    Ok(match reason {
        "max_tokens" | "length" | "max_length" => FinishReason::Length,
        "model_context_window_exceeded" | "model_length" => FinishReason::ContextWindow,
        "tool_use" | "tool_calls" | "tool_call" | "function_call" => FinishReason::ToolCalls,
        "refusal" | "content_filter" | "safety" | "sensitive" => FinishReason::ContentFilter,
        "error" | "abort" | "aborted" | "cancelled" | "network_error" => {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        // end_turn, stop_sequence, pause_turn, stop, eos, and unknown values.
        _ => FinishReason::Stop,
    })
}

/// Returns the finish event of a `stop_reason`; `None` if it is null.
pub(super) fn finish_event(data: &Bytes, of: &[u8]) -> Result<Option<AnswerEvent>, UpstreamError> {
    let Some(reason) = json_cursor::member_value(of, "stop_reason") else { return Ok(None) };
    let reason = parse_stop_reason(&json_cursor::parse_string(reason).ok_or_else(malformed_error)?)?;
    let stop = event_text(data, json_cursor::member_value(of, "stop_sequence"))?;
    let stop_sequence = (!stop.is_empty()).then_some(stop);
    Ok(Some(AnswerEvent::Finish { choice: 0, reason, stop_sequence }))
}
