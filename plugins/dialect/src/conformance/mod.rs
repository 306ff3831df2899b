//! Conformance checkers of client streams: every stream test uses them.

mod chat;
mod messages;
mod responses;

pub use chat::chat;
pub use messages::check_messages_stream;
pub use responses::{check_response, check_responses_stream};
