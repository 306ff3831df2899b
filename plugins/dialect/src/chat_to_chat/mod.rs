//! Translator for a chat client and a chat provider.
//!
//! The request consists of slices of the client's bytes: the gateway replaces the model name, removes members that
//! engines reject, and adds members of its own. The answer is normalized, because engines differ in nearly every detail
//! of the dialect, and client libraries fail on most of the differences.

mod conversation;
mod messages;
mod request;
#[cfg(test)]
mod tests;

use crate::translator_def::{self, TranslatorDef};
use penstock_core::Dialect;

/// Translator from chat clients to chat providers.
pub(crate) const TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Chat,
    path: Dialect::Chat.spec().provider_path,
    build_request: request::build_request,
    convert: None,
    translate_buffered: translator_def::translate_buffered_to_chat,
    translate_stream: translator_def::new_stream_translation_to_chat,
};
