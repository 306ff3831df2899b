//! Translators for text completions (`/v1/completions`): for providers that have this endpoint, and for those that have
//! only chat.
//!
//! Engines of the chat dialect answer both endpoints in nearly the same format, so the chat decoder reads their
//! answers. A provider without the endpoint gets a chat request with the prompt as a user message. Requests with token
//! ids, several prompts, several answers, an echo, log probabilities or a suffix are then refused.

mod request;
#[cfg(test)]
mod tests;

use crate::answer::DecodedAnswer;
use crate::translator_def::TranslatorDef;
use crate::write::ResponseIdentity;
use crate::write::completions::{CompletionStreamWriter, write_buffered};
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, Dialect, InferenceRequest, StreamTranslation, Translator, UpstreamError,
};

pub use request::missing_capability_error;

const NATIVE: TranslatorDef = TranslatorDef {
    client_dialect: Dialect::Chat,
    provider_dialect: Dialect::Chat,
    path: COMPLETIONS_PATH,
    build_request: request::build_completions_request,
    convert: None,
    translate_buffered,
    translate_stream,
};

const AS_CHAT: TranslatorDef = TranslatorDef {
    path: Dialect::Chat.spec().provider_path,
    build_request: request::build_chat_request,
    ..NATIVE
};

/// Path of the endpoint below a provider's base URL.
pub const COMPLETIONS_PATH: &str = "/completions";

/// Returns the translator for an offer that has the completions endpoint, or if `has_endpoint` is false, for one that
/// has only chat.
#[must_use]
pub fn completion_translator(has_endpoint: bool) -> &'static dyn Translator {
    if has_endpoint { &NATIVE } else { &AS_CHAT }
}

fn translate_buffered(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    let answer = DecodedAnswer::decode(ask, target, body)?;
    Ok(write_buffered(&answer, &ResponseIdentity::from_target(target)))
}

fn translate_stream(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Box<dyn StreamTranslation> {
    let identity = ResponseIdentity::from_target(target);
    crate::new_stream_translation(
        ask,
        target,
        CompletionStreamWriter::new(&identity, ask.n, ask.include_usage),
    )
}
