//! State of a lease, and the decisions about its size.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;

/// Time after a refusal for which the other members are asked to return what they do not need at once.
const WANTED_TIME: Duration = Duration::from_secs(3);
/// Time for which a pool that was found empty counts as empty.
pub(super) const EMPTY_POOL_MEMORY: Duration = Duration::from_millis(250);
/// Part of the spending rate that a second's spending replaces: 1 / 8.
const RATE_SHIFT: u32 = 3;

/// Lease of one wallet or budget.
#[derive(Debug, Default)]
pub(super) struct LeaseState {
    /// Amount drawn since the start, minus the returned amount.
    pub(super) drawn: i64,
    /// Part of the drawn amount that was spent at the last check.
    pub(super) spent: i64,
    /// Spending of the last second.
    pub(super) second: i64,
    /// Smoothed spending per second, in eighths of the unit.
    pub(super) rate: i64,
    /// Time at which the pool was last found empty.
    pub(super) empty_at: Option<Instant>,
    /// Balance of the account or rest of the budget at that time, leases of all members included.
    pub(super) total: i64,
    /// Time of the last refusal of a request although the other members hold enough for it.
    pub(super) refused_at: Option<Instant>,
    /// Amount that the refused request needed.
    pub(super) refused: i64,
    /// True if an amount was drawn since the last check: the request that needs it may not have reserved it yet.
    pub(super) is_fresh: bool,
    /// True if the outcome of a draw is unknown.
    pub(super) uncertain: bool,
    /// Held by the request that draws; the others wait for its result.
    pub(super) drawing: Arc<AsyncMutex<()>>,
}

impl LeaseState {
    /// Records the spending of a second; `balance` is the rest of the lease without regard to holds.
    pub(super) fn observe_second(&mut self, balance: i64) {
        let spent = self.drawn.saturating_sub(balance);
        self.second = spent.saturating_sub(self.spent).max(0);
        self.spent = spent;
        // At least one unit, so that the rate of an idle account becomes 0.
        let decay = (self.rate >> RATE_SHIFT).max(1).min(self.rate);
        self.rate = self.rate.saturating_sub(decay).saturating_add(self.second);
    }

    /// Returns the amount to hold in advance.
    pub(super) fn wanted(&self, advance_seconds: i64) -> i64 {
        self.rate.saturating_mul(advance_seconds) >> RATE_SHIFT
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.refused_at.is_some_and(|at| at.elapsed() < WANTED_TIME)
    }

    /// Returns twice the price of a request that was refused lately, so that a lease below that price draws; 0 without one.
    pub(super) fn refused_amount(&self) -> i64 {
        if self.is_wanted() { self.refused.saturating_mul(2) } else { 0 }
    }

    pub(super) fn is_known_empty(&self, now: Instant) -> bool {
        self.empty_at.is_some_and(|at| now.saturating_duration_since(at) < EMPTY_POOL_MEMORY)
    }
}

/// Result of the check of one lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseChange {
    Nothing,
    Draw(i64),
    Return(i64),
}

/// Decides about a lease that another member wants: more than the spending of the last second returns.
pub(super) const fn contended_lease_change(available: i64, second: i64) -> LeaseChange {
    if available > second {
        return LeaseChange::Return(available.saturating_sub(second));
    }
    LeaseChange::Nothing
}

/// Decides about a lease: it draws below half of the wanted amount, and returns above twice that amount.
pub(super) const fn lease_change(available: i64, wanted: i64) -> LeaseChange {
    if available < wanted / 2 {
        return LeaseChange::Draw(wanted.saturating_sub(available));
    }
    if available > wanted.saturating_mul(2) {
        return LeaseChange::Return(available.saturating_sub(wanted));
    }
    LeaseChange::Nothing
}
