//! Translators for a responses provider, and a client of any dialect.
//!
//! The request is built as for a chat provider, by the rules of that pair, and then converted, so that capabilities,
//! limits and presets are handled in one module. The answer is decoded into neutral events and written in the client's
//! dialect. The gateway generates the ids, the repeated members and the reasoning that a client sends back, so it
//! rewrites the response for a responses client too.

mod input;
mod members;
mod request;
#[cfg(test)]
mod tests;
mod tools;

use crate::translator_def::{self, TranslatorDef};
use crate::write::responses;
use crate::{chat_chat, messages_chat};
use bytes::Bytes;
use penstock_core::{ApiError, AttemptTarget, Dialect, InferenceRequest};

const PATH: &str = "/responses";

/// Definition of the translator for chat clients.
pub(crate) const CHAT: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Responses,
    path: PATH,
    build_request: build_from_chat,
    translate_buffered: translator_def::buffered_as_chat,
    translate_stream: translator_def::stream_as_chat,
};

/// Definition of the translator for messages clients.
pub(crate) const MESSAGES: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Messages,
    build_request: build_from_messages,
    translate_buffered: messages_chat::TRANSLATOR.translate_buffered,
    translate_stream: translator_def::stream_as_messages,
    ..CHAT
};

/// Definition of the translator for responses clients, whose requests have the chat form.
pub(crate) const RESPONSES: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Responses,
    translate_buffered: responses::translate_buffered,
    translate_stream: translator_def::stream_as_responses,
    ..CHAT
};

fn build_from_chat(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let chat = (chat_chat::TRANSLATOR.build_request)(ask, target, delivered)?;
    request::convert(ask, target, &Bytes::from(chat.concat()))
}

fn build_from_messages(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    delivered: Option<&str>,
) -> Result<Vec<Bytes>, ApiError> {
    let chat = (messages_chat::TRANSLATOR.build_request)(ask, target, delivered)?;
    request::convert(ask, target, &Bytes::from(chat.concat()))
}
