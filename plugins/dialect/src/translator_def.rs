//! Definition of a translator as a table of functions, so that the code for a pair of dialects has only its special
//! features.

use crate::answer::DecodedAnswer;
use crate::decode::{BufferedDecoder, DialectDecoder};
use crate::write::{self, ResponseIdentity};
use crate::{chat_to_chat, messages_to_chat, reasoning_effort, responses_to_any};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, Dialect, InferenceRequest, StreamTranslation, Translator,
    UpstreamError,
};

/// Function that builds the request body for a provider as a list of segments. The last argument is the delivered text
/// that the provider must continue, if any.
type RequestBuilder = fn(&InferenceRequest, &AttemptTarget<'_>, Option<&str>) -> Result<Vec<Bytes>, ApiError>;

/// Function that converts the request body for a chat provider to that of another dialect.
type BodyConverter = fn(&InferenceRequest, &AttemptTarget<'_>, &Bytes) -> Result<Vec<Bytes>, ApiError>;

/// Dialect of providers: its decoders, and a translator for each client dialect.
pub(crate) struct ProviderDialect {
    /// Constructor of the decoder of a stream. The argument is the seed of generated tool call ids.
    pub(crate) new_decoder: fn(&str) -> Box<dyn DialectDecoder>,
    /// Function that decodes an answer that is not streamed.
    pub(crate) decode_buffered: BufferedDecoder,
    /// True if an answer of the dialect consists of messages, so that the decoder of a stream emits
    /// [`AnswerEvent::MessageStart`](crate::event::AnswerEvent::MessageStart).
    pub(crate) has_message_boundaries: bool,
    pub(crate) translators: &'static [TranslatorDef],
}

/// Translator between a client dialect and a provider dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslatorDef {
    pub(crate) client_dialect: Dialect,
    pub(crate) provider_dialect: Dialect,
    /// Path below the provider's base URL.
    pub(crate) path: &'static str,
    /// Builder of the request body, also of one that makes the provider continue delivered text.
    pub(crate) build_request: RequestBuilder,
    /// Conversion of the request body, if `build_request` builds it for a chat provider; `None` if the body is sent as
    /// built.
    pub(crate) convert: Option<BodyConverter>,
    /// Function that translates an answer that is not streamed.
    pub(crate) translate_buffered:
        fn(&InferenceRequest, &AttemptTarget<'_>, Bytes) -> Result<BufferedResponse, UpstreamError>,
    /// Constructor of the translation of a streamed answer.
    pub(crate) translate_stream: fn(&InferenceRequest, &AttemptTarget<'_>) -> Box<dyn StreamTranslation>,
}

/// Returns the translators for a dialect of providers, one for each client dialect. Each builds the request for a chat
/// provider and converts it, so that capabilities, limits and presets are handled once.
pub(crate) const fn translators_via_chat(provider: Dialect, convert: BodyConverter) -> [TranslatorDef; 3] {
    let chat = TranslatorDef {
        provider_dialect: provider,
        path: provider.spec().provider_path,
        convert: Some(convert),
        ..chat_to_chat::TRANSLATOR
    };
    let TranslatorDef { provider_dialect, path, convert, .. } = chat;
    [
        chat,
        TranslatorDef { provider_dialect, path, convert, ..messages_to_chat::TRANSLATOR },
        TranslatorDef { provider_dialect, path, convert, ..responses_to_any::CHAT_TRANSLATOR },
    ]
}

impl TranslatorDef {
    fn build(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        delivered: Option<&str>,
    ) -> Result<Vec<Bytes>, ApiError> {
        let body = (self.build_request)(ask, target, delivered);
        let converted = match self.convert {
            None => body,
            Some(convert) => body.and_then(|body| convert(ask, target, &Bytes::from(body.concat()))),
        };
        converted.map_err(|refusal| ask.rename_error_param(refusal))
    }
}

impl Translator for TranslatorDef {
    fn client_dialect(&self) -> Dialect {
        self.client_dialect
    }

    fn provider_dialect(&self) -> Dialect {
        self.provider_dialect
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn build_request(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<Bytes>, ApiError> {
        self.build(ask, target, None)
    }

    fn build_continuation(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        delivered: &str,
    ) -> Result<Vec<Bytes>, ApiError> {
        self.build(ask, target, Some(delivered))
    }

    fn translate_buffered(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        body: Bytes,
    ) -> Result<BufferedResponse, UpstreamError> {
        (self.translate_buffered)(ask, target, body)
    }

    fn translate_stream(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Box<dyn StreamTranslation> {
        (self.translate_stream)(ask, target)
    }
}

/// Translates a buffered answer of any provider to the chat dialect.
///
/// # Errors
/// Returns the error of an answer that cannot be decoded.
pub(crate) fn translate_buffered_to_chat(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    let mut answer = DecodedAnswer::decode(ask, target, body)?;
    let output_bytes = answer.output_bytes();
    if reasoning_effort::is_reasoning_hidden(ask) {
        answer.choices.iter_mut().for_each(|choice| choice.reasoning.clear());
    }
    let identity = ResponseIdentity::from_target(target);
    let response = write::chat::write_buffered(&answer, &identity, target.adjustment.choices);
    Ok(BufferedResponse { output_bytes, ..response })
}

/// Creates a translation of a stream of any provider to the chat dialect.
pub(crate) fn new_stream_translation_to_chat(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
) -> Box<dyn StreamTranslation> {
    let choices = target.adjustment.choices;
    let writer = write::chat::ChatStreamWriter::new(
        &ResponseIdentity::from_target(target),
        ask.n,
        ask.include_usage,
        choices,
    )
    .with_hidden_reasoning(reasoning_effort::is_reasoning_hidden(ask));
    crate::new_stream_translation(ask, target, writer)
}

/// Creates a translation of a stream of any provider to the messages dialect.
pub(crate) fn new_stream_translation_to_messages(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
) -> Box<dyn StreamTranslation> {
    crate::new_stream_translation(
        ask,
        target,
        write::messages::MessagesStreamWriter::new(write::messages::WriterOptions::from_request(ask, target)),
    )
}

/// Creates a translation of a stream of any provider to the responses dialect.
pub(crate) fn new_stream_translation_to_responses(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
) -> Box<dyn StreamTranslation> {
    crate::new_stream_translation(ask, target, write::responses::ResponsesStreamWriter::new(ask, target))
}
