//! State of a breaker, and the health of its offer for the ranking.

use std::time::Duration;

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Normal operation.
    Closed,
    /// Ejected offer, which is used only if no other offer is available.
    Open {
        /// Time from which a first probe may use the offer.
        until: Duration,
    },
    /// Offer after an ejection, limited to a few probes at a time.
    HalfOpen,
}

impl BreakerState {
    /// Returns the name used in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Health of an offer, for the ranking of offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferHealth {
    /// Usable without restrictions.
    Healthy,
    /// Half-open offer with a free probe permit, which may be used if
    /// [`CircuitBreaker::try_acquire`](super::CircuitBreaker::try_acquire) succeeds.
    HalfOpen,
    /// Offer in cooldown after a `Retry-After` or a status 429.
    CoolingDown {
        /// End of the cooldown.
        until: Duration,
    },
    /// Ejected offer, which is used only if no other offer is available.
    Ejected {
        /// Number of consecutive failures.
        failures: u32,
        /// Time from which a first probe may use the offer.
        until: Duration,
    },
}
