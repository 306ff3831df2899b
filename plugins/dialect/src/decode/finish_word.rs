//! Parser of the finish reasons of engines and vendors, in all known spellings: a truncated or filtered answer must not
//! look complete.

use penstock_core::{FinishReason, UpstreamError, UpstreamErrorKind};

/// Words that show that an unknown finish reason comes from a content filter.
const FILTER_PARTS: &[&str] = &[
    "blocked",
    "blocklist",
    "copyright",
    "filter",
    "filtered",
    "guardrail",
    "moderation",
    "policy",
    "prohibited",
    "safety",
    "toxic",
];
/// Words that show that an unknown finish reason means an abort by the engine, or a failure of its server.
const ABORT_PARTS: &[&str] = &[
    "abort",
    "aborted",
    "cache",
    "cancel",
    "canceled",
    "cancelled",
    "crash",
    "crashed",
    "deadline",
    "disconnect",
    "disconnected",
    "error",
    "evicted",
    "eviction",
    "exception",
    "failed",
    "failure",
    "interrupted",
    "killed",
    "memory",
    "oom",
    "overloaded",
    "preempt",
    "preempted",
    "preemption",
    "quota",
    "rate",
    "ratelimit",
    "shutdown",
    "timed",
    "timeout",
    "unavailable",
];
/// Words that show that an unknown finish reason means a limit on the output, or an answer without its end.
const LIMIT_PARTS: &[&str] = &[
    "budget",
    "cut",
    "cutoff",
    "incomplete",
    "length",
    "limit",
    "max",
    "partial",
    "truncated",
    "unfinished",
];

/// Parses a finish reason of a chat or messages provider. A word of unknown meaning is read as `Stop`.
///
/// # Errors
/// Returns `InBandError` if the engine reports that it aborted, and `ModelOutput` if it could not parse a tool call of
/// the model.
pub(crate) fn parse_finish_word(word: &str) -> Result<FinishReason, UpstreamError> {
    let word = to_snake_case(word);
    let has_part = |parts: &[&str]| word.split('_').any(|part| parts.contains(&part));
    Ok(match &*word {
        // Engines report a text that was stopped for repetition like a text that reached its token limit.
        "length" | "max_tokens" | "max_length" | "repetition" | "out_of_tokens" | "not_finished" => {
            FinishReason::Length
        }
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
        _ if has_part(&["context"]) => FinishReason::ContextWindow,
        _ if has_part(LIMIT_PARTS) => FinishReason::Length,
        // Finish reasons that mean a normal end: stop, eos, eos_token, end_turn, stop_sequence, pause_turn, complete,
        // and unknown values.
        _ => FinishReason::Stop,
    })
}

/// Returns the words of a finish reason in lower case, with an underscore between them. The words are divided by
/// characters other than letters and digits, or begin with a capital letter after a small one.
fn to_snake_case(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 4);
    let mut is_after_small = false;
    for letter in word.chars() {
        if !letter.is_ascii_alphanumeric() {
            snake.push('_');
        } else {
            if is_after_small && letter.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
        }
        is_after_small = letter.is_ascii_lowercase();
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_for_a_truncated_or_filtered_answer_is_a_regular_end() {
        use FinishReason::{ContentFilter, ContextWindow, Length, Stop, ToolCalls};
        for (reason, words) in [
            (
                Length,
                &[
                    "length",
                    "MAX_TOKENS",
                    "maxTokens",
                    "maxOutputTokens",
                    "max_new_tokens",
                    "repetition",
                    "token_limit",
                    "time_limit",
                    "out_of_tokens",
                    "not_finished",
                    "Incomplete",
                    "unfinished",
                    "cutoff",
                    "cutOff",
                ][..],
            ),
            (ContextWindow, &["model_length", "ERROR_LIMIT", "context_window", "contextLength"]),
            (ToolCalls, &["tool_calls", "toolCalls", "tool-use", "TOOL_CALL", "function_call"]),
            (
                ContentFilter,
                &[
                    "content_filter",
                    "contentFilter",
                    "content-filter",
                    "guardrailIntervened",
                    "copyright",
                    "recitation",
                    "SAFETY",
                    "ERROR_TOXIC",
                    "PROHIBITED_CONTENT",
                    "image_safety",
                ],
            ),
            (
                Stop,
                &[
                    "stop",
                    "STOP",
                    "eos_token",
                    "end_turn",
                    "endTurn",
                    "stop_sequence",
                    "COMPLETE",
                    "pause_turn",
                    "new",
                    "unknown",
                    "other",
                ],
            ),
        ] {
            for word in words {
                assert_eq!(parse_finish_word(word).ok(), Some(reason), "{word}");
            }
        }
        for word in [
            "timeout",
            "TIMEOUT",
            "preempt",
            "preempted",
            "error",
            "ERROR",
            "serverError",
            "USER_CANCEL",
            "abort",
            "network_error",
            "evicted",
            "client_disconnected",
            "disconnect",
            "unavailable",
            "kv_cache_full",
            "oom",
            "out_of_memory",
            "killed",
            "rate_limit",
            "context_canceled",
        ] {
            let error = parse_finish_word(word).map_err(|error| error.kind);
            assert_eq!(error, Err(UpstreamErrorKind::InBandError), "{word}");
        }
        let error = parse_finish_word("MALFORMED_FUNCTION_CALL").map_err(|error| error.kind);
        assert_eq!(error, Err(UpstreamErrorKind::ModelOutput));
    }
}
