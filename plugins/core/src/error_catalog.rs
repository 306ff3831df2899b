//! Table of API errors: HTTP status, stable code, and error type in each dialect.

/// Entry of the error table. Its stable public code is [`ErrorSpec::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// Malformed JSON, wrong type, or value out of range.
    InvalidRequest,
    /// Feature that the gateway, the model or its providers do not have.
    Unsupported,
    /// Input larger than the model's context window.
    ContextLength,
    /// Content rejected by a provider.
    ContentRefused,
    /// API key missing, malformed, unknown, expired or revoked.
    InvalidKey,
    /// Account balance lower than the amount to reserve for the request.
    InsufficientCredits,
    /// Money budget of the key used up.
    BudgetExceeded,
    /// Valid key without the required scope.
    InsufficientScope,
    /// Unknown model, alias or flavor.
    ModelNotFound,
    /// Unknown path, or an object that does not exist, such as a file or a batch.
    NotFound,
    /// Known path with a method that it does not support.
    MethodNotAllowed,
    /// Conflict with another operation or with the state of an object, such as a name that is taken.
    Conflict,
    /// Request body or upload over its size limit.
    TooLarge,
    /// Content type that the endpoint does not read.
    UnsupportedMediaType,
    /// Requested byte range outside the file.
    RangeNotSatisfiable,
    /// Contents other than those that the request expects (`If-Match`).
    PreconditionFailed,
    /// Request target (path and query) over its length limit.
    TargetTooLong,
    /// Request head (headers) over one of its limits.
    HeadTooLarge,
    /// Host that the listener does not serve.
    Misdirected,
    /// Limit of requests or tokens reached.
    RateLimited,
    /// Timeout while the request was received, or while a report was computed.
    RequestTimeout,
    /// Internal error of the gateway.
    Internal,
    /// All providers failed or are unavailable, or a service that the gateway needs, such as its database.
    Unavailable,
    /// Gateway without capacity for a further request.
    Overloaded,
    /// Disk or bucket full, or a quota of stored data reached.
    StorageFull,
}

/// Representation of an error in HTTP responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSpec {
    /// HTTP status.
    pub status: u16,
    /// Stable public code.
    pub code: &'static str,
    /// `error.type` in the chat envelope.
    pub chat_type: &'static str,
    /// `error.type` in the messages envelope.
    pub messages_type: &'static str,
    /// Default message, used if the error has no more exact one.
    pub message: &'static str,
}

const fn spec(
    status: u16,
    code: &'static str,
    chat_type: &'static str,
    messages_type: &'static str,
    sentence: &'static str,
) -> ErrorSpec {
    ErrorSpec { status, code, chat_type, messages_type, message: sentence }
}

impl ErrorCode {
    /// All error codes, in the order of their declaration.
    pub const ALL: [Self; 25] = [
        Self::InvalidRequest,
        Self::Unsupported,
        Self::ContextLength,
        Self::ContentRefused,
        Self::InvalidKey,
        Self::InsufficientCredits,
        Self::BudgetExceeded,
        Self::InsufficientScope,
        Self::ModelNotFound,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Conflict,
        Self::TooLarge,
        Self::UnsupportedMediaType,
        Self::RangeNotSatisfiable,
        Self::PreconditionFailed,
        Self::TargetTooLong,
        Self::HeadTooLarge,
        Self::Misdirected,
        Self::RateLimited,
        Self::RequestTimeout,
        Self::Internal,
        Self::Unavailable,
        Self::Overloaded,
        Self::StorageFull,
    ];

    /// Returns the entry of the error table for this code.
    #[must_use]
    #[rustfmt::skip]
    pub const fn spec(self) -> ErrorSpec {
        match self {
            Self::InvalidRequest => spec(400, "INFERENCE_3201", "invalid_request_error", "invalid_request_error", "The request is not valid."),
            Self::Unsupported => spec(400, "INFERENCE_3202", "unsupported_parameter", "invalid_request_error", "This model does not support a parameter of the request."),
            Self::ContextLength => spec(400, "INFERENCE_3207", "context_length_exceeded", "invalid_request_error", "The input exceeds the model's context window."),
            Self::ContentRefused => spec(400, "INFERENCE_3203", "content_policy_violation", "invalid_request_error", "The provider refused the content of this request."),
            Self::InvalidKey => spec(401, "AUTH_1001", "invalid_api_key", "authentication_error", "The API key is missing, malformed or revoked."),
            Self::InsufficientCredits => spec(402, "BILLING_4001", "insufficient_credits", "billing_error", "The account's balance does not cover this request."),
            Self::BudgetExceeded => spec(402, "BILLING_4002", "budget_exceeded", "billing_error", "The budget of this API key is used up."),
            Self::InsufficientScope => spec(403, "AUTH_1003", "insufficient_scope", "permission_error", "This API key lacks the scope for this endpoint."),
            Self::ModelNotFound => spec(404, "INFERENCE_3101", "model_not_found", "not_found_error", "There is no such model."),
            Self::NotFound => spec(404, "RESOURCE_5001", "not_found", "not_found_error", "There is nothing at this path."),
            Self::MethodNotAllowed => spec(405, "RESOURCE_5002", "method_not_allowed", "invalid_request_error", "This path does not take that method."),
            Self::Conflict => spec(409, "RESOURCE_5003", "conflict", "conflict_error", "The request conflicts with one that is running."),
            Self::TooLarge => spec(413, "RESOURCE_5004", "request_too_large", "request_too_large", "The request body is too large."),
            Self::UnsupportedMediaType => spec(415, "RESOURCE_5005", "unsupported_media_type", "invalid_request_error", "This path does not read that content type."),
            Self::RangeNotSatisfiable => spec(416, "RESOURCE_5007", "range_not_satisfiable", "invalid_request_error", "The file does not have these bytes."),
            Self::PreconditionFailed => spec(412, "RESOURCE_5011", "precondition_failed", "invalid_request_error", "The contents are not those that the request expects."),
            Self::TargetTooLong => spec(414, "RESOURCE_5008", "request_too_large", "invalid_request_error", "The address of the request is too long."),
            Self::HeadTooLarge => spec(431, "RESOURCE_5009", "request_too_large", "invalid_request_error", "The head of the request is too large."),
            Self::Misdirected => spec(421, "RESOURCE_5010", "misdirected_request", "invalid_request_error", "This listener does not answer under that host."),
            Self::RateLimited => spec(429, "RATE_2001", "rate_limit_exceeded", "rate_limit_error", "The rate limit is reached; try again later."),
            Self::RequestTimeout => spec(408, "INFERENCE_3204", "request_timeout", "timeout_error", "The request did not arrive in time."),
            Self::Internal => spec(500, "SERVER_9001", "server_error", "api_error", "The gateway failed with an internal error."),
            Self::Unavailable => spec(503, "INFERENCE_3103", "service_unavailable", "overloaded_error", "All eligible providers failed or are unavailable; try again shortly."),
            Self::Overloaded => spec(503, "SERVER_9002", "service_unavailable", "overloaded_error", "The gateway is at its capacity; try again shortly."),
            Self::StorageFull => spec(507, "RESOURCE_5006", "storage_full", "api_error", "The gateway has no space left to store this."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_is_listed_once_and_no_two_share_a_name() {
        let last = ErrorCode::StorageFull as usize;
        assert!(ErrorCode::ALL.iter().map(|code| *code as usize).eq(0..=last));
        let names: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.spec().code).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }
}
