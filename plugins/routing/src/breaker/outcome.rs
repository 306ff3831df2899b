//! What an attempt's result says about the offer.

use penstock_contract::{Fault, FaultKind};
use std::time::Duration;

/// What an attempt's result says about the offer that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A whole answer; for a stream, one that ended well.
    Good,
    /// The offer failed.
    Bad {
        /// It said `Retry-After`.
        rest: Option<Duration>,
    },
    /// 429: it is well, and busy.
    Limited {
        /// It said `Retry-After`.
        rest: Option<Duration>,
    },
    /// Nothing: the caller's fault or the model's own words, the caller left, the request's own deadline,
    /// a rescue whose sampling differed, or the house had no descriptor left.
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
