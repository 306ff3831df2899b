//! Outcome of an attempt, as evidence about the offer.

use penstock_contract::{Fault, FaultKind};
use std::time::Duration;

/// Outcome of an attempt, as evidence about the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Complete answer; for a stream, a regular end.
    Good,
    /// Failure of the offer.
    Bad {
        /// Value of `Retry-After`.
        rest: Option<Duration>,
    },
    /// Status 429: working but at its limit.
    Limited {
        /// Value of `Retry-After`.
        rest: Option<Duration>,
    },
    /// No evidence: an error of the caller or in the model's output, a disconnected client, the request's own deadline,
    /// a rescue with different text, or no file descriptor left in the gateway.
    Neutral,
}

impl From<&Fault> for Outcome {
    fn from(fault: &Fault) -> Self {
        let rest = fault.retry_after;
        match fault.kind {
            FaultKind::Caller
            | FaultKind::Deadline
            | FaultKind::Diverged
            | FaultKind::Descriptors
            | FaultKind::ModelOutput => Self::Neutral,
            FaultKind::Status(429) => Self::Limited { rest },
            FaultKind::Connect
            | FaultKind::Tls
            | FaultKind::Reset
            | FaultKind::FirstByte
            | FaultKind::FirstToken
            | FaultKind::Idle
            | FaultKind::Status(_)
            | FaultKind::Credentials(_)
            | FaultKind::Malformed
            | FaultKind::InBand
            | FaultKind::Truncated => Self::Bad { rest },
        }
    }
}
