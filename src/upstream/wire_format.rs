//! Wire format of requests to an offer: a dialect for text generation, or the format of a provider adapter for other
//! kinds of requests.

use super::offer::{OfferState, RequestHead};
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, Dialect, InferenceRequest, InferenceTask, ProviderAdapter,
    RequestAdjustment, StreamTranslation, Translator, UpstreamAnswer, UpstreamError, UpstreamErrorKind,
    UpstreamRequest,
};
use penstock_dialect::completions::{COMPLETIONS_PATH, completion_translator};

/// Wire format of one request to an offer.
#[derive(Clone, Copy)]
pub enum WireFormat {
    /// Dialect of the provider, with the translator between it and the dialect of the client.
    Dialects(&'static dyn Translator),
    /// Format of a provider adapter, for requests other than text generation.
    Adapter(&'static dyn ProviderAdapter),
}

impl WireFormat {
    /// Returns the format of this request for the offer; `None` if the offer has no format for it.
    #[must_use]
    pub fn for_request(offer: &OfferState, ask: &InferenceRequest) -> Option<Self> {
        if let Some(shape) = offer.offer.shape {
            return (shape.kind() == ask.kind).then_some(Self::Adapter(shape));
        }
        if matches!(ask.task, InferenceTask::Complete(_)) {
            return Some(Self::Dialects(completion_translator(offer.offer.capabilities.completions)));
        }
        let dialect = offer.dialect_for(ask.dialect).filter(|_| ask.kind.generates_tokens())?;
        penstock_dialect::find_translator(ask.dialect, dialect).map(Self::Dialects)
    }

    /// Returns the dialect of the request to the provider. Adapters use the headers of the chat dialect.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Dialects(translator) => translator.provider_dialect(),
            Self::Adapter(_) => Dialect::Chat,
        }
    }

    /// Returns the prepared head of requests in this format; `None` if the offer has no such head.
    #[must_use]
    pub fn request_head(self, offer: &OfferState) -> Option<&RequestHead> {
        match self {
            Self::Dialects(translator) if translator.path() == COMPLETIONS_PATH => offer.completions_head(),
            Self::Dialects(translator) => offer.request_head(translator.provider_dialect()),
            Self::Adapter(_) => offer.adapter_head(),
        }
    }

    /// Returns the calls to the provider that the request needs; only a provider adapter may need several.
    ///
    /// # Errors
    /// Returns an error if the request cannot be expressed.
    pub fn build_requests(
        self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        match self {
            Self::Dialects(translator) => {
                Ok(vec![UpstreamRequest::from_json(translator.build_request(ask, target)?)])
            }
            Self::Adapter(shape) => shape.build_requests(ask, target),
        }
    }

    /// Returns the requests for the part of an answer that the provider's responses lack, such as further images.
    #[must_use]
    pub fn build_follow_up_requests(
        self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: &[UpstreamAnswer],
    ) -> Vec<UpstreamRequest> {
        match self {
            Self::Dialects(_) => Vec::new(),
            Self::Adapter(shape) => shape.build_missing_requests(ask, target, answers),
        }
    }

    /// Returns the refusal of a request with a constraint that the dialect of the offer or its `supported_parameters`
    /// cannot express; `None` if the request has no such constraint. The request is built to find this out, so the
    /// function is called only for requests with [`penstock_dialect::parameters::has_engine_constraint`].
    #[must_use]
    pub fn unsupported_constraint_error(offer: &OfferState, ask: &InferenceRequest) -> Option<ApiError> {
        Self::inexpressible_request_error(offer, ask)
            .filter(penstock_dialect::parameters::is_constraint_error)
    }

    /// Returns the refusal of a request that the dialect of the offer cannot express; `None` if it can. The request is
    /// built to find this out, with one choice if its choices are requested one by one.
    #[must_use]
    pub fn inexpressible_request_error(offer: &OfferState, ask: &InferenceRequest) -> Option<ApiError> {
        let wire_format = Self::for_request(offer, ask)?;
        let target = AttemptTarget {
            model: &offer.offer.name,
            dialect: wire_format.dialect(),
            capabilities: &offer.offer.capabilities,
            preset: &[],
            max_tokens: None,
            adjustment: RequestAdjustment::default(),
            answer_model: &ask.model,
            answer_id: "",
            answer_created: 0,
        };
        if ask.has_separable_choices() {
            let single = InferenceRequest { n: 1, ..ask.clone() };
            return wire_format.build_requests(&single, &target).err();
        }
        wire_format.build_requests(ask, &target).err()
    }

    /// Returns the translation of a streamed answer; `None` if this format has no translation.
    #[must_use]
    pub fn new_stream_translation(
        self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Option<Box<dyn StreamTranslation>> {
        match self {
            Self::Dialects(translator) => Some(translator.translate_stream(ask, target)),
            Self::Adapter(shape) => shape.translate_stream(ask),
        }
    }

    /// Returns the names of the provider's response headers that the translation reads.
    #[must_use]
    pub fn upstream_response_headers(self) -> &'static [&'static str] {
        match self {
            Self::Dialects(_) => &[],
            Self::Adapter(shape) => shape.upstream_response_headers(),
        }
    }

    /// Translates the complete answers of the provider, one for each request that was sent and in their order, into the
    /// response for the client.
    ///
    /// # Errors
    /// Returns an upstream error if an answer is malformed.
    pub fn translate_buffered(
        self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        mut answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        match self {
            Self::Dialects(translator) => {
                let answer = answers.pop().ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))?;
                translator.translate_buffered(ask, target, answer.body)
            }
            Self::Adapter(shape) => shape.translate(ask, target, answers),
        }
    }
}
