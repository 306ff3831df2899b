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
    /// `{"provider","reason","ms"}`, plus `"status"` where there was one.
    #[must_use]
    pub fn to_json(&self, provider: &str) -> Value {
        let mut said = json!({ "provider": provider, "reason": self.kind.name(), "ms": self.millis });
        if let (FaultKind::Status(status) | FaultKind::Credentials(status), Some(object)) =
            (self.kind, said.as_object_mut())
        {
            object.insert("status".to_owned(), status.into());
        }
        said
    }
}
