//! Strict checkers of what clients get: every stream test runs through them.

mod chat;
mod messages;

pub use chat::chat;
pub use messages::messages;
