//! Outcome of an attempt for the breaker.

use penstock_core::{UpstreamError, UpstreamErrorKind};
use std::time::Duration;

/// Outcome of an attempt, as evidence for or against the health of the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Complete answer, or the regular end of a stream.
    Success,
    /// Failed attempt that counts against the offer.
    Failure {
        /// Wait that the provider requested by `Retry-After`, if any.
        retry_after: Option<Duration>,
    },
    /// Status 429: the offer works but is at its rate limit.
    RateLimited {
        /// Wait that the provider requested by `Retry-After`, if any.
        retry_after: Option<Duration>,
    },
    /// No evidence about the offer, for example: an error of the caller or in the model's output, a disconnected
    /// client, the request's own deadline, a rescue (continuation of another offer's broken stream) whose text differs
    /// from the text already sent, or no free file descriptor in the gateway.
    Neutral,
}

impl From<&UpstreamError> for AttemptOutcome {
    fn from(fault: &UpstreamError) -> Self {
        let retry_after = fault.retry_after;
        match fault.kind {
            UpstreamErrorKind::Caller
            | UpstreamErrorKind::DeadlineExceeded
            | UpstreamErrorKind::Diverged
            | UpstreamErrorKind::NoDescriptors
            | UpstreamErrorKind::ModelOutput => Self::Neutral,
            UpstreamErrorKind::Status(429) => Self::RateLimited { retry_after },
            UpstreamErrorKind::Connect
            | UpstreamErrorKind::Tls
            | UpstreamErrorKind::Reset
            | UpstreamErrorKind::FirstByteTimeout
            | UpstreamErrorKind::FirstTokenTimeout
            | UpstreamErrorKind::IdleTimeout
            | UpstreamErrorKind::Status(_)
            | UpstreamErrorKind::Credentials(_)
            | UpstreamErrorKind::Malformed
            | UpstreamErrorKind::InBandError
            | UpstreamErrorKind::Truncated => Self::Failure { retry_after },
        }
    }
}
