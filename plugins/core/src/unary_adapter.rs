//! Interface between the gateway and the providers of models without a dialect: embeddings, rerank, images,
//! transcriptions, speech, moderation.
//!
//! A [`ProviderAdapter`] implements the API of one family of providers for one kind of model. To add one, implement the
//! trait in a file of the kind's crate and add a line to the crate's table. The gateway does the rest (routing,
//! failover, billing, logging).

use crate::api_error::ApiError;
use crate::inference_request::InferenceRequest;
use crate::model_kind::ModelKind;
use crate::traits::{AttemptTarget, BufferedResponse, StreamTranslation};
use crate::upstream_error::UpstreamError;
use crate::usage::MeasuredEnergy;
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;

/// Request to a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRequest {
    /// Content type of the body.
    pub content_type: Cow<'static, str>,
    /// Body in chunks; unchanged parts are slices of the client's body.
    pub body: Vec<Bytes>,
    /// Index of the chunk before which the client's upload is inserted, if there is one. The upload is read from the
    /// spool for each attempt.
    pub upload_index: Option<usize>,
}

impl UpstreamRequest {
    /// Returns a request with a JSON body.
    #[must_use]
    pub const fn from_json(body: Vec<Bytes>) -> Self {
        Self { content_type: Cow::Borrowed("application/json"), body, upload_index: None }
    }
}

/// Complete response of a provider to one [`UpstreamRequest`], with status 200.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamAnswer {
    /// Response body.
    pub body: Bytes,
    /// Values of the headers named by [`ProviderAdapter::upstream_response_headers`], in its order.
    pub headers: Vec<Option<Box<str>>>,
    /// Measured energy in the headers; `None` if they have none.
    pub measured_energy: Option<MeasuredEnergy>,
}

impl UpstreamAnswer {
    /// Returns the value of a header, by its index in [`ProviderAdapter::upstream_response_headers`], as a number; `None` if it
    /// is absent or not a number.
    #[must_use]
    pub fn header_number(&self, header: usize) -> Option<u64> {
        self.headers.get(header)?.as_deref()?.trim().parse().ok()
    }
}

/// API of one family of providers for one kind of model.
///
/// The same request and target always give the same provider requests. Implementations have no clock and no state.
pub trait ProviderAdapter: Sync + Send {
    /// Returns the kind of model that the adapter serves.
    fn kind(&self) -> ModelKind;

    /// Returns the name of the API in the configuration, lower case.
    fn name(&self) -> &'static str;

    /// Returns the path below the provider's base URL.
    fn path(&self) -> &'static str;

    /// Returns the names of the response headers that [`ProviderAdapter::translate`] reads, lower case.
    fn upstream_response_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Builds the requests to the provider, at least one. Several requests are sent one after the other to the same
    /// provider; if one fails, all of them are sent to the next provider.
    ///
    /// # Errors
    /// Returns an error that names the field if this provider's API cannot express it; another provider may.
    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError>;

    /// Builds the answer for the client from the responses, which are in the order of the requests.
    ///
    /// # Errors
    /// Returns the provider's failure if a response is invalid; the next provider is tried.
    fn translate(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError>;

    /// Builds further requests for the part of the answer that is missing in the responses so far, although all of
    /// them are valid. The new responses are appended to the previous ones.
    fn build_missing_requests(
        &self,
        _ask: &InferenceRequest,
        _target: &AttemptTarget<'_>,
        _answers: &[UpstreamAnswer],
    ) -> Vec<UpstreamRequest> {
        Vec::new()
    }

    /// Returns a translation for an answer that is forwarded to the client while it arrives; `None` if this API has no
    /// streamed answers. The request for it is the first one of [`ProviderAdapter::build_requests`].
    fn translate_stream(&self, _ask: &InferenceRequest) -> Option<Box<dyn StreamTranslation>> {
        None
    }
}

impl fmt::Debug for dyn ProviderAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
