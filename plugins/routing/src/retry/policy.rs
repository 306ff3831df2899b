//! Limits and input of the retry planner.

use std::time::Duration;

/// Limits of one request's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptPolicy {
    /// Maximum number of attempts, retries and rescues included. Default 4.
    pub max_attempts: u32,
    /// Deadline of the request, as a point in time. Default never.
    pub deadline: Duration,
    /// Maximum `Retry-After` of a failed offer for which the planner waits instead of using another offer. Without
    /// another offer it waits for any cooldown that ends before the deadline. Default 0.
    pub max_retry_after: Duration,
    /// Mean delay before a quick retry. The actual delay is random, between half and one and a half times of it.
    /// Default 50 ms.
    pub quick_retry_delay: Duration,
}

impl Default for AttemptPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 4,
            deadline: Duration::MAX,
            max_retry_after: Duration::ZERO,
            quick_retry_delay: Duration::from_millis(50),
        }
    }
}

/// Planned offer, as input of the retry planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedOffer {
    /// Index of the offer in the gateway.
    pub offer: usize,
    /// Gateway's index of the offer's provider: a failed connection, a rejected key and a `Retry-After` apply to all
    /// offers of the provider.
    pub provider: usize,
    /// End of the cooldown ([`CircuitBreaker::cooldown_until`](crate::CircuitBreaker::cooldown_until)); `None` without
    /// one.
    pub cooldown_until: Option<Duration>,
    /// True if a quick retry is useful ([`CircuitBreaker::is_stable`](crate::CircuitBreaker::is_stable)).
    pub is_stable: bool,
}

impl PlannedOffer {
    /// Returns a stable offer without cooldown.
    #[must_use]
    pub const fn new(offer: usize, provider: usize) -> Self {
        Self { offer, provider, cooldown_until: None, is_stable: true }
    }
}
