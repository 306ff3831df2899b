//! Conformance checkers of client streams: every stream test uses them.

mod chat;
mod messages;

pub use chat::chat;
pub use messages::check_messages_stream;
