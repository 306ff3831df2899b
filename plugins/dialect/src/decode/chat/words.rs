//! Finish reasons in all known spellings, and other members whose format varies between engines.

use crate::scan::{self, Cursor};
use penstock_contract::{Fault, FaultKind, Finish, Stated};
use penstock_wire::{figures, json};

/// Parses a finish reason.
///
/// # Errors
/// Returns `InBand` if the engine reports that it aborted.
pub(super) fn finish(word: &str) -> Result<Finish, Fault> {
    Ok(match word {
        "length" | "max_tokens" | "max_length" | "MAX_TOKENS" => Finish::Length,
        "model_length" | "model_context_window_exceeded" => Finish::Window,
        "tool_calls" | "tool_use" | "tool_call" | "function_call" => Finish::ToolCalls,
        "content_filter" | "safety" | "refusal" | "SAFETY" | "RECITATION" | "sensitive" => {
            Finish::ContentFilter
        }
        "error" | "abort" | "aborted" | "cancelled" | "network_error" | "insufficient_system_resource" => {
            return Err(Fault::new(FaultKind::InBand));
        }
        // stop, eos, eos_token, end_turn, stop_sequence, STOP, and unknown values.
        _ => Finish::Stop,
    })
}

/// Returns the finish reason of a choice, if it has ended; a buffered choice always has.
pub(super) fn reason(word: Option<&[u8]>, whole: bool) -> Result<Option<Finish>, Fault> {
    let word = word.map(|word| scan::string(word).ok_or(Fault::new(FaultKind::Malformed))).transpose()?;
    match word.filter(|word| !word.is_empty()) {
        Some(word) => finish(&word).map(Some),
        None => Ok(whole.then_some(Finish::Stop)),
    }
}

/// Parses the usage in Groq's member `x_groq.usage`.
pub(super) fn vendor_usage(object: &[u8]) -> Option<Stated> {
    let mut members = json::members(object);
    while let Some((key, value)) = members.next_named() {
        if key == "usage" {
            return figures::usage(value);
        }
    }
    None
}

/// Returns true if the next value is `null` or an empty object, which some engines write instead of an empty list.
pub(super) fn is_nothing(value: &Cursor<'_>) -> bool {
    if value.first() == Some(b'[') {
        return false;
    }
    let json = value.clone().value();
    scan::is_null(json) || (scan::is_object(json) && scan::members(json).next().is_none())
}

/// Returns true if log probabilities contain no token, as in a chunk with the role.
pub(super) fn is_hollow(logprobs: &[u8]) -> bool {
    !scan::members(logprobs).any(|(_, list)| scan::elements(list).next().is_some())
}

/// Returns an object. Some engines write an empty list if there is none.
pub(super) fn object(value: Option<&[u8]>) -> Result<Option<&[u8]>, Fault> {
    let value = value.filter(|value| !scan::is_array(value) || scan::elements(value).next().is_some());
    if value.is_none_or(scan::is_object) { Ok(value) } else { Err(Fault::new(FaultKind::Malformed)) }
}
