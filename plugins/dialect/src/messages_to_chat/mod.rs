//! Translator for a messages client and a chat provider.
//!
//! The request is written from slices of the client's bytes. The answer is decoded into neutral events, which are
//! written in the messages dialect.

mod block;
mod content;
mod conversation;
pub(crate) mod ids;
mod request;
mod serialize;
#[cfg(test)]
mod tests;

use crate::translator_def::{self, TranslatorDef};
use crate::write::messages;
use penstock_core::Dialect;

/// Translator from messages clients to chat providers.
pub(crate) const TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Messages,
    provider_dialect: Dialect::Chat,
    path: Dialect::Chat.spec().provider_path,
    build_request: request::build_request,
    convert: None,
    translate_buffered: messages::translate_buffered,
    translate_stream: translator_def::new_stream_translation_to_messages,
};
