//! Work of one attempt, in the units by which energy is computed.

use penstock_core::{TokenUsage, WorkDone};
use std::time::Duration;

/// Work of one attempt, and its duration. After a failure this is the work that the provider had done until then: zero
/// tokens if the request never arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptWork {
    /// Amount of work done in the attempt, such as tokens or images.
    pub work_done: WorkDone,
    /// Time that the provider took.
    pub duration: Duration,
    /// True if the provider confirmed that it served the request in its throughput tier, as batches are.
    pub throughput_tier: bool,
}

impl AttemptWork {
    /// Creates work in tokens in ordinary service.
    #[must_use]
    pub const fn from_tokens(usage: TokenUsage, took: Duration) -> Self {
        Self::new(WorkDone::Tokens(usage), took)
    }

    /// Creates work of any kind in ordinary service.
    #[must_use]
    pub const fn new(done: WorkDone, duration: Duration) -> Self {
        Self { work_done: done, duration, throughput_tier: false }
    }
}
