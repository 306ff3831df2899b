//! Limits and input of the retry planner.

use std::time::Duration;

/// Limits of one request's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Maximum number of attempts, retries and rescues included. Default 4.
    pub attempts: u32,
    /// Deadline of the request, as a point in time. Default never.
    pub deadline: Duration,
    /// Longest cooldown that is waited for instead of a failover. Default 0.
    pub patience: Duration,
    /// Mean delay before a quick retry, varied by half of it. Default 50 ms.
    pub quick_retry: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts: 4,
            deadline: Duration::MAX,
            patience: Duration::ZERO,
            quick_retry: Duration::from_millis(50),
        }
    }
}

/// Planned offer, as input of the retry planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Gateway's index of the offer.
    pub offer: usize,
    /// Gateway's index of its provider: a failed connection, a rejected key and a `Retry-After` apply to all its
    /// offers.
    pub provider: usize,
    /// End of the cooldown ([`Breaker::resting_until`](crate::Breaker::resting_until)).
    pub resting_until: Option<Duration>,
    /// True if a quick retry is useful ([`Breaker::in_good_standing`](crate::Breaker::in_good_standing)).
    pub good_standing: bool,
}

impl Entry {
    /// Returns a stable offer without cooldown.
    #[must_use]
    pub const fn new(offer: usize, provider: usize) -> Self {
        Self { offer, provider, resting_until: None, good_standing: true }
    }
}
