//! Translator for a chat client and a messages provider.
//!
//! The request is written from slices of the client's bytes; the answer is decoded
//! into neutral events and written in the chat dialect.

mod parts;
mod request;
mod turns;

pub use request::MAX_TOKENS;
pub(crate) use request::schema;

use crate::translator_def::{self, TranslatorDef};
use penstock_core::Dialect;

/// Definition of the translator.
pub(crate) const PAIR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Messages,
    path: "/messages",
    build_request: request::body,
    translate_buffered: translator_def::buffered_as_chat,
    translate_stream: translator_def::stream_as_chat,
};
