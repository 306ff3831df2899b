//! What one attempt did, in the units that energy is counted in.

use penstock_contract::{Done, Usage};
use std::time::Duration;

/// One attempt's work. A failed attempt has the tokens it read and those it
/// wrote before it broke; one that never reached the provider has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What was done.
    pub done: Done,
    /// How long the provider took.
    pub took: Duration,
    /// The provider confirmed that it ran in its throughput tier (a batch).
    pub throughput_tier: bool,
}

impl Work {
    /// Tokens, in ordinary service.
    #[must_use]
    pub const fn tokens(usage: Usage, took: Duration) -> Self {
        Self::new(Done::Tokens(usage), took)
    }

    /// Anything, in ordinary service.
    #[must_use]
    pub const fn new(done: Done, took: Duration) -> Self {
        Self { done, took, throughput_tier: false }
    }
}
