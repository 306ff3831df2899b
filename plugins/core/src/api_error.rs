//! API error, independent of the dialect in which it is written.

use crate::error_catalog::{ErrorCode, ErrorSpec};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// API error of a request. Contains only public data: no key, prompt, provider address or internal cause.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// Code of the error: its entry in the error table.
    pub code: ErrorCode,
    /// Public message; the default message of the error code unless a more exact one was set.
    pub message: Cow<'static, str>,
    /// Invalid field, as a path such as `messages[2].content`.
    pub param: Option<String>,
    /// True if `param` is the name that the client sent, although the client's dialect calls the field differently.
    pub is_client_param: bool,
    /// Structured context; `details` in the response.
    pub details: Map<String, Value>,
    /// Value of `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// True if only amounts that other requests in flight have reserved caused the error: the same request can succeed
    /// once they have ended.
    pub is_caused_by_reservations: bool,
    /// True if the request must not be repeated automatically, although clients repeat requests after this status.
    pub is_final: bool,
}

impl ApiError {
    /// Returns an error with the default message of its code.
    #[must_use]
    pub fn new(code: ErrorCode) -> Self {
        Self {
            code,
            message: Cow::Borrowed(code.spec().message),
            param: None,
            is_client_param: false,
            details: Map::new(),
            retry_after: None,
            is_caused_by_reservations: false,
            is_final: false,
        }
    }

    /// Returns an error with this message.
    #[must_use]
    pub fn with_message(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), ..Self::new(code) }
    }

    /// Returns true for a name of the client that a message may contain: it is short and an identifier, so that it can
    /// be neither a prompt nor a sentence.
    #[must_use]
    pub fn may_quote(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain)
    }

    /// Returns an invalid-request error for this field.
    #[must_use]
    pub fn invalid(param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::with_message(ErrorCode::InvalidRequest, message).with_param(param)
    }

    /// Returns an unsupported-feature error for this field.
    #[must_use]
    pub fn unsupported(param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::with_message(ErrorCode::Unsupported, message).with_param(param)
    }

    /// Returns an error for an input that exceeds the context window, with both sizes in tokens. Each dialect writes
    /// its own message, because client frameworks search for specific wording.
    #[must_use]
    pub fn context_length_exceeded(context_length: u64, input_tokens: u64) -> Self {
        Self::new(ErrorCode::ContextLength)
            .with_details_member("context_length", context_length)
            .with_details_member("input_tokens", input_tokens)
    }

    /// Sets the name of the invalid request field.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Marks `param` as the name that the client sent, so that it is not replaced by the name of the dialect.
    #[must_use]
    pub const fn mark_param_as_sent(mut self) -> Self {
        self.is_client_param = true;
        self
    }

    /// Adds a member to `details`, the structured context of the error.
    #[must_use]
    pub fn with_details_member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Sets `Retry-After`, in seconds.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Marks the error as one after which the request must not be repeated automatically.
    #[must_use]
    pub const fn non_retryable(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Marks the error as caused only by amounts that other requests in flight have reserved, and sets `Retry-After` to
    /// one second.
    #[must_use]
    pub fn caused_by_reservations(mut self) -> Self {
        self.is_caused_by_reservations = true;
        self.with_retry_after(1)
    }

    /// Returns the entry of the error table for this code.
    #[must_use]
    pub const fn spec(&self) -> ErrorSpec {
        self.code.spec()
    }
}
