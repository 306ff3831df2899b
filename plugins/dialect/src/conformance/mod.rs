//! Checkers that tests use to verify that a stream for a client conforms to its dialect.

mod chat;
mod messages;
mod responses;

pub use chat::check_chat_stream;
pub use messages::check_messages_stream;
pub use responses::{check_response, check_responses_stream};

use penstock_core::Dialect;

/// Checks a complete stream for a client. `include_usage` is true if a chat client asked for a chunk with the usage.
///
/// # Errors
/// Returns the first violated rule, or states that no client uses the dialect.
pub fn check_stream(client: Dialect, stream: &[u8], include_usage: bool) -> Result<(), String> {
    match client {
        Dialect::Chat => check_chat_stream(stream, include_usage),
        Dialect::Messages => check_messages_stream(stream),
        Dialect::Responses => check_responses_stream(stream),
        other => Err(format!("{} has no clients", other.name())),
    }
}
