//! Work of one attempt, in the units that energy is counted in.

use penstock_contract::{Done, Usage};
use std::time::Duration;

/// Work of one attempt. A failed attempt has the tokens it read and those it wrote before it broke; one that never
/// reached the provider has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Amount of work.
    pub done: Done,
    /// Time that the provider took.
    pub took: Duration,
    /// True if the provider confirmed that it ran in its throughput tier (a batch).
    pub throughput_tier: bool,
}

impl Work {
    /// Creates token work in ordinary service.
    #[must_use]
    pub const fn tokens(usage: Usage, took: Duration) -> Self {
        Self::new(Done::Tokens(usage), took)
    }

    /// Creates any work in ordinary service.
    #[must_use]
    pub const fn new(done: Done, took: Duration) -> Self {
        Self { done, took, throughput_tier: false }
    }
}
