//! A chat client and a chat provider.
//!
//! The request is the client's own bytes with the model replaced, what engines
//! do not take left out, and what only the gateway knows filled in. The answer
//! is cleaned: engines disagree about nearly every detail of the dialect, and
//! client libraries break on most of them.

mod messages;
mod request;
#[cfg(test)]
mod tests;
mod turns;

use crate::pair::{self, Pair};
use penstock_contract::Dialect;

/// The pair.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Chat,
    provider: Dialect::Chat,
    path: "/chat/completions",
    request: request::body,
    whole: pair::chat_whole,
    reply: pair::chat_reply,
};
