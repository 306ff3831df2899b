//! Parser of the finish reasons of engines and vendors, in all known spellings: a truncated or filtered answer must not
//! look complete.

use penstock_core::{FinishReason, UpstreamError, UpstreamErrorKind};

/// Words that show that an unknown finish reason comes from a content filter.
const FILTER_PARTS: &[&str] = &[
    "blocked",
    "blocklist",
    "filter",
    "filtered",
    "guardrail",
    "moderation",
    "prohibited",
    "safety",
    "toxic",
];
/// Words that show that an unknown finish reason means an abort by the engine.
const ABORT_PARTS: &[&str] = &[
    "abort",
    "aborted",
    "cancel",
    "canceled",
    "cancelled",
    "error",
    "exception",
    "failed",
    "failure",
    "interrupted",
    "overloaded",
    "preempted",
    "timed",
    "timeout",
];
/// Words that show that an unknown finish reason means a limit on the output.
const LIMIT_PARTS: &[&str] = &["budget", "length", "limit", "max", "truncated"];

/// Parses a finish reason of a chat or messages provider. A word of unknown meaning is read as `Stop`.
///
/// # Errors
/// Returns `InBandError` if the engine reports that it aborted, and `ModelOutput` if it could not parse a tool call of
/// the model.
pub(crate) fn parse_finish_word(word: &str) -> Result<FinishReason, UpstreamError> {
    let word = word.to_ascii_lowercase();
    let has_part = |parts: &[&str]| {
        word.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| parts.contains(&part))
    };
    Ok(match &*word {
        // Engines report a text that was stopped for repetition like a text that reached its token limit.
        "length" | "max_tokens" | "max_length" | "repetition" => FinishReason::Length,
        "model_length" | "model_context_window_exceeded" | "error_limit" => FinishReason::ContextWindow,
        "tool_calls" | "tool_use" | "tool_call" | "function_call" => FinishReason::ToolCalls,
        "content_filter" | "safety" | "refusal" | "recitation" | "sensitive" | "language" | "spii" => {
            FinishReason::ContentFilter
        }
        "malformed_function_call" | "unexpected_tool_call" | "too_many_tool_calls" => {
            return Err(UpstreamError::invalid_model_output());
        }
        "insufficient_system_resource" => return Err(UpstreamError::new(UpstreamErrorKind::InBandError)),
        _ if has_part(FILTER_PARTS) => FinishReason::ContentFilter,
        _ if has_part(ABORT_PARTS) => return Err(UpstreamError::new(UpstreamErrorKind::InBandError)),
        _ if has_part(LIMIT_PARTS) => FinishReason::Length,
        // Finish reasons that mean a normal end: stop, eos, eos_token, end_turn, stop_sequence, pause_turn, complete,
        // and unknown values.
        _ => FinishReason::Stop,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_for_a_truncated_or_filtered_answer_is_a_regular_end() {
        use FinishReason::{ContentFilter, ContextWindow, Length, Stop, ToolCalls};
        for (reason, words) in [
            (Length, &["length", "MAX_TOKENS", "max_new_tokens", "repetition", "token_limit"][..]),
            (ContextWindow, &["model_length", "ERROR_LIMIT"]),
            (ToolCalls, &["tool_calls", "TOOL_CALL", "function_call"]),
            (
                ContentFilter,
                &[
                    "content_filter",
                    "recitation",
                    "SAFETY",
                    "ERROR_TOXIC",
                    "PROHIBITED_CONTENT",
                    "image_safety",
                ],
            ),
            (
                Stop,
                &["stop", "STOP", "eos_token", "end_turn", "stop_sequence", "COMPLETE", "pause_turn", "new"],
            ),
        ] {
            for word in words {
                assert_eq!(parse_finish_word(word).ok(), Some(reason), "{word}");
            }
        }
        for word in
            ["timeout", "TIMEOUT", "preempted", "error", "ERROR", "USER_CANCEL", "abort", "network_error"]
        {
            let error = parse_finish_word(word).map_err(|error| error.kind);
            assert_eq!(error, Err(UpstreamErrorKind::InBandError), "{word}");
        }
        let error = parse_finish_word("MALFORMED_FUNCTION_CALL").map_err(|error| error.kind);
        assert_eq!(error, Err(UpstreamErrorKind::ModelOutput));
    }
}
