//! How a provider fails, as the attempt loop needs to know it.

use crate::adjust::Extras;
use crate::refusal::Refusal;
use crate::table::Code;
use std::time::Duration;

/// The kind of a failure; its name is a metric label, and stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No connection.
    Connect,
    /// The house has no descriptor for a connection: nobody was asked, and no provider is to blame.
    Descriptors,
    /// No TLS session.
    Tls,
    /// The connection broke before a whole answer.
    Reset,
    /// No response head in time.
    FirstByte,
    /// A head, but no content token in time.
    FirstToken,
    /// Content, then silence.
    Idle,
    /// The total deadline.
    Deadline,
    /// A status that another provider may not repeat (408 409 425 429 5xx).
    Status(u16),
    /// 401, 403, 404: the operator's key or model name is wrong.
    Credentials(u16),
    /// A body that is no answer of the dialect.
    Malformed,
    /// An error object inside a 200.
    InBand,
    /// The stream ended without a finish reason.
    Truncated,
    /// The model wrote what no client can be given: the provider did its work, and another would do no better.
    ModelOutput,
    /// A rescue whose text is not what the client already has.
    Diverged,
    /// The caller is to blame; every provider would say the same.
    Caller,
}

impl FaultKind {
    /// Its name in logs and metrics, for the operator.
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

    /// Whether every offer of the provider would fail alike: there is no way to it, or it does not take our key.
    #[must_use]
    pub const fn is_of_provider(self) -> bool {
        self.is_of_connection() || matches!(self, Self::Credentials(401))
    }

    /// Whether there is no way to the provider.
    #[must_use]
    pub const fn is_of_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Tls)
    }

    /// Reason in `details.attempts`, for customers: one of four words. How a provider fails, and above all that it does
    /// not take the operator's key, is the operator's affair.
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

/// One failure of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What the client is told if the fault is the caller's own; such a fault
    /// is never retried and never counts against the provider.
    pub refusal: Option<Box<Refusal>>,
    /// The provider asked not to be asked again for this long.
    pub retry_after: Option<Duration>,
    /// Tokens that the window leaves for the answer, by the provider's own count, where more was asked for.
    pub room: Option<u64>,
    /// The most tokens of an answer that the provider takes in `max_tokens`, where more was asked for, whatever the input.
    pub max_output: Option<u64>,
    /// Members that the provider's sentence names, of those that may be the gateway's own.
    pub named: Extras,
    /// How many choices are whole, of an answer that has fewer than were asked for: no fault of the provider's.
    pub answered: Option<u32>,
}

impl Fault {
    /// A failure of the provider.
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

    /// Whether less would do: the answer that was asked for is too long beside the input.
    #[must_use]
    pub fn is_for_length(&self) -> bool {
        let about = |refusal: &Refusal| {
            refusal.code == Code::ContextLength
                || refusal.param.as_deref().is_some_and(|param| param.ends_with("_tokens"))
        };
        self.room.is_some() || self.max_output.is_some() || self.refusal.as_deref().is_some_and(about)
    }

    /// The model's own words are at fault. Such a fault is never retried or rescued and never counts against the
    /// provider; what was delivered is charged.
    #[must_use]
    pub fn model_output() -> Self {
        let sentence = "The model wrote more or longer tool calls than can be passed on.";
        let refusal = Some(Box::new(Refusal::because(Code::Unavailable, sentence).retry_after(1)));
        Self { refusal, ..Self::new(FaultKind::ModelOutput) }
    }

    /// The caller's own fault, in the provider's eyes.
    #[must_use]
    pub fn caller(refusal: Refusal) -> Self {
        Self { refusal: Some(Box::new(refusal)), ..Self::new(FaultKind::Caller) }
    }
}
