//! Validation of conversations by the dialect of the client.

use crate::limits::RequestLimits;
use crate::messages::{MessagesPurpose, validate_messages_request};
use crate::responses::{ResponsesPurpose, validate_responses_request};
use bytes::Bytes;
use penstock_core::{ApiError, Dialect, InferenceRequest};

/// Validates a request to generate an answer, in the dialect of the client.
///
/// # Errors
/// Returns the refusal of the dialect's own validation, and `Unsupported` for a dialect that no client speaks.
pub fn validate_generation_request(
    client: Dialect,
    body: Bytes,
    limits: &RequestLimits,
) -> Result<InferenceRequest, ApiError> {
    match client {
        Dialect::Chat => crate::validate_chat_request(body, limits),
        Dialect::Messages => validate_messages_request(body, limits, MessagesPurpose::Generate),
        Dialect::Responses => validate_responses_request(body, limits, ResponsesPurpose::Generate),
        other => Err(ApiError::unsupported("dialect", format!("{} has no clients.", other.name()))),
    }
}
