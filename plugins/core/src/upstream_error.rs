//! Provider failures, classified for the retry loop.

use crate::api_error::ApiError;
use crate::error_catalog::ErrorCode;
use crate::refused_members::RefusedMembers;
use crate::usage::TokenUsage;
use std::time::Duration;

/// Kind of a failure. Its name is a metric label and a log value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamErrorKind {
    /// Connection failed.
    Connect,
    /// Gateway out of file descriptors for a connection: nothing was sent, and the provider is not at fault.
    NoDescriptors,
    /// TLS handshake failed.
    Tls,
    /// Connection closed before the response was complete.
    Reset,
    /// Timeout before the response head.
    FirstByteTimeout,
    /// Timeout between the response head and the first content token.
    FirstTokenTimeout,
    /// Timeout of a stream that had started.
    IdleTimeout,
    /// Deadline of the whole request exceeded.
    DeadlineExceeded,
    /// Error status that another provider may not return (408, 409, 424, 425, 429 or 5xx).
    Status(u16),
    /// Status 401, 402, 403 or 404: the operator's key, account or model name is invalid.
    Credentials(u16),
    /// Body that is not a response of the dialect.
    Malformed,
    /// Error object inside a response with status 200.
    InBandError,
    /// Stream ended without a finish reason.
    Truncated,
    /// Model output that cannot be passed to any client: the provider worked correctly, and another provider would give
    /// no better result.
    ModelOutput,
    /// Rescue whose text differs from the text that the client has received.
    Diverged,
    /// Error of the client's request: each provider would reject it.
    Caller,
}

impl UpstreamErrorKind {
    /// Returns the name in logs and metrics, for the operator.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::NoDescriptors => "no_descriptors",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::FirstTokenTimeout => "first_token_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::DeadlineExceeded => "deadline",
            Self::Status(429) => "rate_limited",
            Self::Status(status) if is_timeout_status(status) => "timeout",
            Self::Status(_) => "status",
            Self::Credentials(_) => "credentials",
            Self::Malformed => "malformed",
            Self::InBandError => "in_band_error",
            Self::Truncated => "truncated",
            Self::ModelOutput => "model_output",
            Self::Diverged => "diverged",
            Self::Caller => "caller",
        }
    }

    /// Returns true if each other offer of the provider would fail for the same reason: the connection failed, or the
    /// provider rejects the operator's key.
    #[must_use]
    pub const fn is_provider_wide(self) -> bool {
        self.is_connect_error() || matches!(self, Self::Credentials(401))
    }

    /// Returns true if no connection to the provider could be established: connecting or the TLS handshake failed. A
    /// connection that broke later does not count.
    #[must_use]
    pub const fn is_connect_error(self) -> bool {
        matches!(self, Self::Connect | Self::Tls)
    }

    /// Returns the reason in `details.attempts`, for customers: one of four words. Details, above all a rejected
    /// operator key, are reported to the operator only.
    #[must_use]
    pub const fn public_reason(self) -> &'static str {
        match self {
            Self::Status(429) => "rate_limited",
            Self::Status(status) if is_timeout_status(status) => "timeout",
            Self::FirstByteTimeout | Self::FirstTokenTimeout | Self::IdleTimeout | Self::DeadlineExceeded => {
                "timeout"
            }
            Self::Caller => "refused",
            Self::ModelOutput
            | Self::Connect
            | Self::NoDescriptors
            | Self::Tls
            | Self::Reset
            | Self::Status(_)
            | Self::Credentials(_)
            | Self::Malformed
            | Self::InBandError
            | Self::Truncated
            | Self::Diverged => "unavailable",
        }
    }
}

/// Returns true for a status by which a provider reports a timeout of its own: 408, 504, and 522 and 524 of Cloudflare.
#[must_use]
pub const fn is_timeout_status(status: u16) -> bool {
    matches!(status, 408 | 504 | 522 | 524)
}

/// Tokens that a context window leaves for the answer after the input, as a provider states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputBudget {
    /// Number of tokens that are left, as the provider counts them.
    Exact(u64),
    /// Unknown number, because the provider has not counted the whole input.
    UncountedInput {
        /// Context window that the provider states, in tokens.
        window: u64,
    },
}

/// Error of one attempt at a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamError {
    /// Kind of the failure.
    pub kind: UpstreamErrorKind,
    /// Error for the client if the request or the model's output caused the failure. Such a failure never counts
    /// against the provider, and is not retried unless `may_be_provider` is true or another offer has a larger context
    /// window.
    pub api_error: Option<Box<ApiError>>,
    /// True if the provider may have caused the failure: another provider is tried, and `api_error` is sent only if all
    /// providers fail.
    pub may_be_provider: bool,
    /// Delay before the next request, as the provider demanded (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// Tokens that the context window leaves for the answer, if the request allowed more.
    pub output_budget: Option<OutputBudget>,
    /// Maximum that the provider accepts as `max_tokens`, regardless of the input, if the request allowed more.
    pub max_output: Option<u64>,
    /// Members that the provider refuses, of those that the gateway may have added.
    pub refused_members: RefusedMembers,
    /// Number of complete choices, if the response has fewer than requested; not a failure of the provider.
    pub completed_choices: Option<u32>,
    /// Usage of a buffered answer that was read, but cannot be delivered, for its energy; `None` if there was no such
    /// answer, and for a stream.
    pub discarded_usage: Option<Box<TokenUsage>>,
    /// Error object inside a response with status 200, for a classification that needs the request.
    pub in_band_body: Option<Box<[u8]>>,
}

impl UpstreamError {
    /// Returns an error of this kind whose other fields are all empty.
    #[must_use]
    pub const fn new(kind: UpstreamErrorKind) -> Self {
        Self {
            kind,
            api_error: None,
            may_be_provider: false,
            retry_after: None,
            output_budget: None,
            max_output: None,
            refused_members: RefusedMembers::NONE,
            completed_choices: None,
            discarded_usage: None,
            in_band_body: None,
        }
    }

    /// Returns true if a request for a shorter answer could succeed: the requested length does not fit the context
    /// window together with the input, or exceeds the provider's maximum.
    #[must_use]
    pub fn is_output_length_error(&self) -> bool {
        let about = |refusal: &ApiError| {
            refusal.code == ErrorCode::ContextLength
                || refusal.param.as_deref().is_some_and(|param| param.ends_with("_tokens"))
        };
        self.output_budget.is_some()
            || self.max_output.is_some()
            || self.api_error.as_deref().is_some_and(about)
    }

    /// Creates the failure of an answer whose output cannot be passed on. It is never retried or rescued and never
    /// counts against the provider; the delivered output is charged. Neither the gateway nor a client library repeats
    /// the request, because each repetition costs the work of a whole answer.
    #[must_use]
    pub fn invalid_model_output() -> Self {
        let sentence = "The model wrote output that cannot be passed on: too many items, parts or tool calls, or a \
                        tool call with a name that is empty or too long.";
        let refusal = ApiError::with_message(ErrorCode::Unavailable, sentence).non_retryable();
        let api_error = Some(Box::new(refusal));
        Self { api_error, ..Self::new(UpstreamErrorKind::ModelOutput) }
    }

    /// Creates a failure that the provider attributes to the caller; `refusal` is the error for the client.
    #[must_use]
    pub fn caller_error(refusal: ApiError) -> Self {
        Self { api_error: Some(Box::new(refusal)), ..Self::new(UpstreamErrorKind::Caller) }
    }
}
