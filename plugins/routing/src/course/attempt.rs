//! A failed attempt, for `details.attempts`, logs and metrics.

use penstock_contract::FaultKind;
use serde_json::{Value, json};

/// A failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The house's index of the offer.
    pub offer: usize,
    /// The house's index of its provider.
    pub provider: usize,
    /// Why it failed.
    pub kind: FaultKind,
    /// From asking to failing.
    pub millis: u64,
}

impl Attempt {
    /// `{"provider","reason","ms"}`, with a reason for customers ([`FaultKind::reason`]).
    #[must_use]
    pub fn to_json(&self, provider: &str) -> Value {
        json!({ "provider": provider, "reason": self.kind.reason(), "ms": self.millis })
    }
}
