//! Translator for a chat client and a messages provider.
//!
//! The request is written from slices of the client's bytes; the answer is decoded
//! into neutral events and written in the chat dialect.

mod parts;
mod request;
mod turns;

pub use request::MAX_TOKENS;
pub(crate) use request::schema;

use crate::pair::{self, Pair};
use penstock_contract::Dialect;

/// Definition of the translator.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Chat,
    provider: Dialect::Messages,
    path: "/messages",
    request: request::body,
    whole: pair::chat_whole,
    reply: pair::chat_reply,
};
