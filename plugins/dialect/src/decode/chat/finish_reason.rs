//! Finish reasons in all known spellings, and other members whose format varies between engines.

use crate::json_cursor::{self, JsonCursor};
use penstock_core::{FinishReason, ReportedUsage, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Parses a finish reason.
///
/// # Errors
/// Returns `InBandError` if the engine reports that it aborted.
pub(super) fn parse_finish_reason(word: &str) -> Result<FinishReason, UpstreamError> {
    Ok(match word {
        "length" | "max_tokens" | "max_length" | "MAX_TOKENS" => FinishReason::Length,
        "model_length" | "model_context_window_exceeded" => FinishReason::ContextWindow,
        "tool_calls" | "tool_use" | "tool_call" | "function_call" => FinishReason::ToolCalls,
        "content_filter" | "safety" | "refusal" | "SAFETY" | "RECITATION" | "sensitive" => {
            FinishReason::ContentFilter
        }
        "error" | "abort" | "aborted" | "cancelled" | "network_error" | "insufficient_system_resource" => {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        // stop, eos, eos_token, end_turn, stop_sequence, STOP, and unknown values.
        _ => FinishReason::Stop,
    })
}

/// Returns the finish reason of a choice if it has ended. A buffered choice (`whole`) has always ended.
pub(super) fn choice_finish_reason(
    word: Option<&[u8]>,
    whole: bool,
) -> Result<Option<FinishReason>, UpstreamError> {
    let word = word
        .map(|word| json_cursor::parse_string(word).ok_or(UpstreamError::new(UpstreamErrorKind::Malformed)))
        .transpose()?;
    match word.filter(|word| !word.is_empty()) {
        Some(word) => parse_finish_reason(&word).map(Some),
        None => Ok(whole.then_some(FinishReason::Stop)),
    }
}

/// Parses the usage in Groq's member `x_groq.usage`.
pub(super) fn parse_groq_usage(object: &[u8]) -> Option<ReportedUsage> {
    let mut members = json::members(object);
    while let Some((key, value)) = members.next_unescaped() {
        if key == "usage" {
            return usage::parse_usage(value);
        }
    }
    None
}

/// Returns true if the next value is `null`, an empty string or an empty object, which some engines write instead of an
/// empty list.
pub(super) fn replaces_empty_list(value: &JsonCursor<'_>) -> bool {
    if value.peek_byte() == Some(b'[') {
        return false;
    }
    let json = value.clone().take_value();
    json_cursor::is_null(json)
        || json == b"\"\""
        || (json_cursor::is_object(json) && json_cursor::members(json).next().is_none())
}

/// Returns true if log probabilities list no token, as some engines write them in a chunk that has only the role.
pub(super) fn has_no_tokens(logprobs: &[u8]) -> bool {
    !json_cursor::members(logprobs).any(|(_, list)| json_cursor::elements(list).next().is_some())
}

/// Returns an object; `None` if it is absent, or an empty list, which some engines write instead.
pub(super) fn expect_object(value: Option<&[u8]>) -> Result<Option<&[u8]>, UpstreamError> {
    let value =
        value.filter(|value| !json_cursor::is_array(value) || json_cursor::elements(value).next().is_some());
    if value.is_none_or(json_cursor::is_object) {
        Ok(value)
    } else {
        Err(UpstreamError::new(UpstreamErrorKind::Malformed))
    }
}
