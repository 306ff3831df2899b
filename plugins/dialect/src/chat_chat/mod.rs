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

use crate::translator_def::{self, TranslatorDef};
use penstock_contract::Dialect;

/// The pair.
pub(crate) const PAIR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Chat,
    path: "/chat/completions",
    build_request: request::body,
    translate_buffered: translator_def::buffered_as_chat,
    translate_stream: translator_def::stream_as_chat,
};
