//! A chat client and a messages provider.
//!
//! The request is written from slices of the client's own bytes; the answer
//! passes through the neutral events and wears the chat dialect's face.

mod parts;
mod request;
mod turns;

pub use request::MAX_TOKENS;
pub(crate) use request::schema;

use crate::pair::{self, Pair};
use penstock_contract::Dialect;

/// The pair.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Chat,
    provider: Dialect::Messages,
    path: "/messages",
    request: request::body,
    whole: pair::chat_whole,
    reply: pair::chat_reply,
};
