//! Work of one attempt, in the units that energy is counted in.

use penstock_core::{TokenUsage, WorkDone};
use std::time::Duration;

/// Work of one attempt. A failed attempt has the tokens it read and those it wrote before it broke; one that never
/// reached the provider has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptWork {
    /// Amount of work.
    pub done: WorkDone,
    /// Time that the provider took.
    pub duration: Duration,
    /// True if the provider confirmed that it ran in its throughput tier (a batch).
    pub throughput_tier: bool,
}

impl AttemptWork {
    /// Creates token work in ordinary service.
    #[must_use]
    pub const fn tokens(usage: TokenUsage, took: Duration) -> Self {
        Self::new(WorkDone::Tokens(usage), took)
    }

    /// Creates any work in ordinary service.
    #[must_use]
    pub const fn new(done: WorkDone, duration: Duration) -> Self {
        Self { done, duration, throughput_tier: false }
    }
}
