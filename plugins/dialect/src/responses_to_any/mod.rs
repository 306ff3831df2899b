//! Translators between a responses client and a chat or messages provider.
//!
//! Validation has converted the request to the chat form, so it is built like that of a chat client. The answer is
//! decoded into neutral events and written in the responses dialect.

#[cfg(test)]
mod tests;

use crate::translator_def::{self, TranslatorDef};
use crate::write::responses;
use crate::{chat_to_chat, chat_to_messages};
use penstock_core::Dialect;

/// Translator from responses clients to chat providers.
pub(crate) const CHAT_TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Responses,
    provider_dialect: Dialect::Chat,
    path: chat_to_chat::TRANSLATOR.path,
    build_request: chat_to_chat::TRANSLATOR.build_request,
    convert: None,
    translate_buffered: responses::translate_buffered,
    translate_stream: translator_def::new_stream_translation_to_responses,
};

/// Translator from responses clients to messages providers.
pub(crate) const MESSAGES_TRANSLATOR: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Responses,
    provider_dialect: Dialect::Messages,
    path: chat_to_messages::TRANSLATOR.path,
    build_request: chat_to_messages::TRANSLATOR.build_request,
    convert: None,
    translate_buffered: responses::translate_buffered,
    translate_stream: translator_def::new_stream_translation_to_responses,
};
