//! What an attempt planner may do, and whom it may ask.

use std::time::Duration;

/// The limits of one request's attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Attempts at most, retries and rescues included. Default 4.
    pub attempts: u32,
    /// The end of the request's time: an instant, not a span. Default never.
    pub deadline: Duration,
    /// A rest no longer than this is waited for rather than moved on from. Default 0.
    pub patience: Duration,
    /// Around this long before a quick retry, half of it less or more. Default 50 ms.
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

/// One offer of the plan, as the attempt planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The house's index of the offer.
    pub offer: usize,
    /// The house's index of its provider: a failed connection, a refused key
    /// and a `Retry-After` hold for all its offers.
    pub provider: usize,
    /// Not to be asked before ([`Breaker::resting_until`](crate::Breaker::resting_until)).
    pub resting_until: Option<Duration>,
    /// Worth a quick retry ([`Breaker::in_good_standing`](crate::Breaker::in_good_standing)).
    pub good_standing: bool,
}

impl Entry {
    /// An offer in good standing that does not rest.
    #[must_use]
    pub const fn new(offer: usize, provider: usize) -> Self {
        Self { offer, provider, resting_until: None, good_standing: true }
    }
}
