//! Translator for a messages client and a chat provider.
//!
//! The request is written from slices of the client's bytes; the answer is decoded
//! into neutral events and written from them.

mod block;
pub(crate) mod ids;
mod request;
mod said;
mod speak;
#[cfg(test)]
mod tests;
mod turns;

use crate::pair::{self, Pair};
use crate::write::messages;
use penstock_contract::Dialect;

/// Definition of the translator.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Messages,
    provider: Dialect::Chat,
    path: "/chat/completions",
    request: request::body,
    whole: messages::whole,
    reply: pair::messages_reply,
};
