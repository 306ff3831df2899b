//! A chat client and a messages provider.
//!
//! The request is written from slices of the client's own bytes; the answer
//! passes through the neutral events and wears the chat dialect's face.

mod parts;
mod request;
mod turns;

pub use request::MAX_TOKENS;
pub(crate) use request::schema;

use crate::translator_def::{self, TranslatorDef};
use penstock_contract::Dialect;

/// The pair.
pub(crate) const PAIR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Messages,
    path: "/messages",
    build_request: request::body,
    translate_buffered: translator_def::buffered_as_chat,
    translate_stream: translator_def::stream_as_chat,
};
