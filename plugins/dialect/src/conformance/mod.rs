//! Conformance checkers of client streams: every stream test uses them.

mod chat;
mod messages;
mod responses;

pub use chat::check_chat_stream;
pub use messages::check_messages_stream;
pub use responses::{check_response, check_responses_stream};

use penstock_core::Dialect;

/// Checks a client's stream; a chat stream has usage if the client asked for it.
///
/// # Errors
/// Returns the violated rule, or the name of a dialect that no client speaks.
pub fn check_stream(client: Dialect, stream: &[u8], include_usage: bool) -> Result<(), String> {
    match client {
        Dialect::Chat => check_chat_stream(stream, include_usage),
        Dialect::Messages => check_messages_stream(stream),
        Dialect::Responses => check_responses_stream(stream),
        other => Err(format!("{} has no clients", other.name())),
    }
}
