//! Token usage of a batch.

use penstock_core::TokenUsage;
use serde::{Deserialize, Serialize};

/// Token usage of all responses of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct BatchUsage {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
}

impl BatchUsage {
    /// Adds the usage of a response.
    pub const fn add(&mut self, usage: &TokenUsage) {
        self.input = self.input.saturating_add(usage.input);
        self.cached = self.cached.saturating_add(usage.cached);
        self.output = self.output.saturating_add(usage.output);
        self.reasoning = self.reasoning.saturating_add(usage.reasoning);
    }
}
