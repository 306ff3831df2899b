//! Translator for a chat client and a messages provider.
//!
//! The request is written from slices of the client's bytes. The answer is decoded into neutral events and written in
//! the chat dialect.

mod content_blocks;
mod conversation;
pub(crate) mod parsed_message;
mod request;
mod tools;

pub use request::DEFAULT_MAX_TOKENS;
pub(crate) use request::write_object_schema;

use crate::translator_def::{self, TranslatorDef};
use penstock_core::Dialect;

/// Translator from chat clients to messages providers.
pub(crate) const TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Messages,
    path: Dialect::Messages.spec().provider_path,
    build_request: request::build_request,
    convert: None,
    translate_buffered: translator_def::translate_buffered_to_chat,
    translate_stream: translator_def::new_stream_translation_to_chat,
};
