//! Failed attempt, for `details.attempts`, logs and metrics.

use penstock_core::UpstreamErrorKind;
use serde_json::{Value, json};

/// Failed attempt at an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Index of the offer in the gateway.
    pub offer: usize,
    /// Index of the offer's provider in the gateway.
    pub provider: usize,
    /// Kind of the failure.
    pub kind: UpstreamErrorKind,
    /// Milliseconds from the start of the attempt to the failure.
    pub millis: u64,
}

impl FailedAttempt {
    /// Returns the JSON object `{"provider","reason","ms"}`, with a reason for customers, see
    /// [`UpstreamErrorKind::public_reason`].
    #[must_use]
    pub fn to_json(&self, provider: &str) -> Value {
        json!({ "provider": provider, "reason": self.kind.public_reason(), "ms": self.millis })
    }
}
