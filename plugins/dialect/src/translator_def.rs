//! Definition of a pair of dialects: a table of functions, so that a pair contains only its own code.

use crate::answer::DecodedAnswer;
use crate::write::{self, ResponseIdentity};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, Dialect, InferenceRequest, StreamTranslation, Translator,
    UpstreamError,
};

/// Function that builds the request body for a provider, as segments.
type RequestBuilder = fn(&InferenceRequest, &AttemptTarget<'_>, Option<&str>) -> Result<Vec<Bytes>, ApiError>;

/// Translator between a client dialect and a provider dialect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TranslatorDef {
    pub(crate) client_dialect: Dialect,
    pub(crate) provider_dialect: Dialect,
    /// Path below the provider's base URL.
    pub(crate) path: &'static str,
    /// Builder of the request body; with delivered text, of the request to continue it.
    pub(crate) build_request: RequestBuilder,
    /// Translator of a buffered answer.
    pub(crate) translate_buffered:
        fn(&InferenceRequest, &AttemptTarget<'_>, Bytes) -> Result<BufferedResponse, UpstreamError>,
    /// Constructor of the translation of a streamed answer.
    pub(crate) translate_stream: fn(&InferenceRequest, &AttemptTarget<'_>) -> Box<dyn StreamTranslation>,
}

impl Translator for TranslatorDef {
    fn client(&self) -> Dialect {
        self.client_dialect
    }

    fn provider(&self) -> Dialect {
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
        (self.build_request)(ask, target, None)
    }

    fn build_continuation(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        delivered: &str,
    ) -> Result<Vec<Bytes>, ApiError> {
        (self.build_request)(ask, target, Some(delivered))
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
pub(crate) fn buffered_as_chat(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    body: Bytes,
) -> Result<BufferedResponse, UpstreamError> {
    let answer = DecodedAnswer::decode(ask, target, body)?;
    Ok(write::chat::plain(&answer, &ResponseIdentity::from_target(target), target.adjustment.choices))
}

/// Creates a translation of a stream of any provider to the chat dialect.
pub(crate) fn stream_as_chat(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
) -> Box<dyn StreamTranslation> {
    let choices = target.adjustment.choices;
    let writer = write::chat::ChatStreamWriter::new(
        &ResponseIdentity::from_target(target),
        ask.n,
        ask.include_usage,
        choices,
    );
    crate::new_stream_translation(ask, target, writer)
}

/// Creates a translation of a stream of any provider to the messages dialect.
pub(crate) fn stream_as_messages(
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
pub(crate) fn stream_as_responses(
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
) -> Box<dyn StreamTranslation> {
    crate::new_stream_translation(ask, target, write::responses::ResponsesStreamWriter::new(ask, target))
}
