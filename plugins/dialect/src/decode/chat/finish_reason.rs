//! Finish reason of a choice, and other members whose format varies between engines.

use crate::decode::parse_finish_word;
use crate::json_cursor::{self, JsonCursor};
use penstock_core::{FinishReason, ReportedUsage, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Returns the finish reason of a choice; `None` if it has not ended. A choice of a buffered completion (`whole`)
/// without a finish reason has ended with `Stop`, and also one with an empty finish reason if the completion has usage.
///
/// # Errors
/// Returns `Malformed` if the reason is not a string, `Truncated` if it is empty in a buffered completion without
/// usage, and the errors of [`parse_finish_word`].
pub(super) fn choice_finish_reason(
    word: Option<&[u8]>,
    whole: bool,
    has_usage: bool,
) -> Result<Option<FinishReason>, UpstreamError> {
    let word = word
        .map(|word| json_cursor::parse_string(word).ok_or(UpstreamError::new(UpstreamErrorKind::Malformed)))
        .transpose()?;
    match word {
        Some(word) if !word.is_empty() => parse_finish_word(&word).map(Some),
        Some(_) if whole && !has_usage => Err(UpstreamError::new(UpstreamErrorKind::Truncated)),
        _ => Ok(whole.then_some(FinishReason::Stop)),
    }
}

/// Parses the usage in the value of Groq's member `x_groq`; `None` if its `usage` is missing or reports no tokens.
pub(super) fn parse_groq_usage(object: &[u8]) -> Option<ReportedUsage> {
    let mut members = json::members(object);
    while let Some((key, value)) = members.next_unescaped() {
        if key == "usage" {
            return usage::parse_usage(value);
        }
    }
    None
}

/// Returns true if the next value is `null`, an empty string or an empty object. Some engines write these instead of an
/// empty list.
pub(super) fn is_empty_list_substitute(value: &JsonCursor<'_>) -> bool {
    if value.peek_byte() == Some(b'[') {
        return false;
    }
    let json = value.clone().take_value();
    json_cursor::is_null(json)
        || json == b"\"\""
        || (json_cursor::is_object(json) && json_cursor::members(json).next().is_none())
}

/// Returns true if an object of log probabilities lists no token. Some engines write such objects in the chunk that has
/// only the role.
pub(super) fn is_empty_logprobs_object(logprobs: &[u8]) -> bool {
    !json_cursor::members(logprobs).any(|(_, list)| json_cursor::elements(list).next().is_some())
}

/// Returns the value if it is an object; `None` if it is absent, or an empty list, which some engines write instead.
///
/// # Errors
/// Returns `Malformed` for any other value.
pub(super) fn optional_object(value: Option<&[u8]>) -> Result<Option<&[u8]>, UpstreamError> {
    let value =
        value.filter(|value| !json_cursor::is_array(value) || json_cursor::elements(value).next().is_some());
    if value.is_none_or(json_cursor::is_object) {
        Ok(value)
    } else {
        Err(UpstreamError::new(UpstreamErrorKind::Malformed))
    }
}
