//! Translator for a chat client and a chat provider.
//!
//! The request consists of slices of the client's bytes: the model is replaced,
//! members that engines reject are removed, and members that only the gateway
//! knows are added. The answer is normalized, because engines differ in nearly
//! every detail of the dialect, and client libraries fail on most of them.

mod messages;
mod request;
#[cfg(test)]
mod tests;
mod turns;

use crate::pair::{self, Pair};
use penstock_contract::Dialect;

/// Definition of the translator.
pub(crate) const PAIR: Pair = Pair {
    client: Dialect::Chat,
    provider: Dialect::Chat,
    path: "/chat/completions",
    request: request::body,
    whole: pair::chat_whole,
    reply: pair::chat_reply,
};
