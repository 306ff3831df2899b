//! Provider failures, classified for the retry loop.

use crate::adjust::Extras;
use crate::refusal::Refusal;
use crate::table::Code;
use std::time::Duration;

/// Kind of a failure. Its name is a metric label and a log value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Connection failed.
    Connect,
    /// Gateway out of file descriptors for a connection: nothing was sent, and the provider is not at fault.
    Descriptors,
    /// TLS handshake failed.
    Tls,
    /// Connection closed before the response was complete.
    Reset,
    /// Timeout before the response head.
    FirstByte,
    /// Timeout between the response head and the first content token.
    FirstToken,
    /// Timeout of a stream that had started.
    Idle,
    /// Deadline of the whole request exceeded.
    Deadline,
    /// Status that another provider may not return (408 409 425 429 5xx).
    Status(u16),
    /// Status 401, 403 or 404: the operator's key or model name is invalid.
    Credentials(u16),
    /// Body that is not a response of the dialect.
    Malformed,
    /// Error object inside a response with status 200.
    InBand,
    /// Stream ended without a finish reason.
    Truncated,
    /// Model output that cannot be passed to any client: the provider worked correctly, and another provider would give
    /// no better result.
    ModelOutput,
    /// Rescue whose text differs from the text that the client has received.
    Diverged,
    /// Error of the caller; each provider would reject the request.
    Caller,
}

impl FaultKind {
    /// Name in logs and metrics, for the operator.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Descriptors => "no_descriptors",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::FirstByte => "first_byte_timeout",
            Self::FirstToken => "first_token_timeout",
            Self::Idle => "idle_timeout",
            Self::Deadline => "deadline",
            Self::Status(429) => "rate_limited",
            Self::Status(_) => "status",
            Self::Credentials(_) => "credentials",
            Self::Malformed => "malformed",
            Self::InBand => "in_band_error",
            Self::Truncated => "truncated",
            Self::ModelOutput => "model_output",
            Self::Diverged => "diverged",
            Self::Caller => "caller",
        }
    }

    /// True if all offers of the provider would fail the same way: the connection failed, or the provider rejects the
    /// operator's key.
    #[must_use]
    pub const fn is_of_provider(self) -> bool {
        self.is_of_connection() || matches!(self, Self::Credentials(401))
    }

    /// True if the connection to the provider failed.
    #[must_use]
    pub const fn is_of_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Tls)
    }

    /// Reason in `details.attempts`, for customers: one of four words. Details, above all a rejected operator key, are
    /// reported to the operator only.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Status(429) => "rate_limited",
            Self::FirstByte | Self::FirstToken | Self::Idle | Self::Deadline | Self::Status(408) => "timeout",
            Self::Caller => "refused",
            Self::ModelOutput
            | Self::Connect
            | Self::Descriptors
            | Self::Tls
            | Self::Reset
            | Self::Status(_)
            | Self::Credentials(_)
            | Self::Malformed
            | Self::InBand
            | Self::Truncated
            | Self::Diverged => "unavailable",
        }
    }
}

/// Error of one attempt at a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Kind of the failure.
    pub kind: FaultKind,
    /// Error for the client if the caller is at fault; such a failure is never retried and never counts against the
    /// provider.
    pub refusal: Option<Box<Refusal>>,
    /// Delay that the provider requested before the next request.
    pub retry_after: Option<Duration>,
    /// Tokens of the context window left for the answer, as counted by the provider, if the request asked for more.
    pub room: Option<u64>,
    /// Maximum that the provider accepts as `max_tokens`, regardless of the input, if the request asked for more.
    pub max_output: Option<u64>,
    /// Members named in the provider's error message, of those that the gateway may have added.
    pub named: Extras,
    /// Number of complete choices, if the response has fewer than requested; not a failure of the provider.
    pub answered: Option<u32>,
}

impl Fault {
    /// Returns a failure of the provider.
    #[must_use]
    pub const fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            refusal: None,
            retry_after: None,
            room: None,
            max_output: None,
            named: Extras::NONE,
            answered: None,
        }
    }

    /// True if a shorter answer could succeed: the requested length does not fit the context window together with the
    /// input.
    #[must_use]
    pub fn is_for_length(&self) -> bool {
        let about = |refusal: &Refusal| {
            refusal.code == Code::ContextLength
                || refusal.param.as_deref().is_some_and(|param| param.ends_with("_tokens"))
        };
        self.room.is_some() || self.max_output.is_some() || self.refusal.as_deref().is_some_and(about)
    }

    /// Failure caused by the model's output. It is never retried or rescued and never counts against the provider; the
    /// delivered output is charged.
    #[must_use]
    pub fn model_output() -> Self {
        let sentence = "The model wrote more or longer tool calls than can be passed on.";
        let refusal = Some(Box::new(Refusal::because(Code::Unavailable, sentence).retry_after(1)));
        Self { refusal, ..Self::new(FaultKind::ModelOutput) }
    }

    /// Failure that the provider attributes to the caller.
    #[must_use]
    pub fn caller(refusal: Refusal) -> Self {
        Self { refusal: Some(Box::new(refusal)), ..Self::new(FaultKind::Caller) }
    }
}
