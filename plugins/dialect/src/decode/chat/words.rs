//! Finish reasons in every spelling that was seen.

use penstock_contract::{Fault, FaultKind, Finish};

/// What a finish reason means.
///
/// # Errors
/// `InBand` where the engine says that it broke off.
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
        // stop, eos, eos_token, end_turn, stop_sequence, STOP, and what is not known.
        _ => Finish::Stop,
    })
}
