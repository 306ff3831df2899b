//! State of a lease, and the decisions about its size.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;

/// Time for which, after a refusal, the other members are asked to return all except the spending of their last second.
const WANTED_TIME: Duration = Duration::from_secs(3);
/// Time for which, after a draw got too little, other requests do not read the pool.
pub(super) const EMPTY_POOL_CACHE_TIME: Duration = Duration::from_millis(250);
/// Base of the time after which a heartbeat reads an empty pool again. It is doubled for each draw in a row that found
/// the pool empty: 2 s after the first such draw.
const EMPTY_POOL_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of doublings of `EMPTY_POOL_PAUSE`: to 16 s.
const MAX_DOUBLINGS: u32 = 4;
/// Shift by which the spending rate is smoothed: the spending of a second replaces 1/8 of the rate.
const RATE_SHIFT: u32 = 3;

/// Amount that a draw got from a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrawnAmount {
    pub(super) amount: i64,
    /// Amount that the pool still has.
    pub(super) rest: i64,
}

/// State of a pool from which a draw got too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EmptyPool {
    /// Time of the last draw that got too little.
    found_at: Instant,
    /// Amount that was left in the pool after the last draw that got too little.
    rest: i64,
    /// Number of draws in a row that left nothing in the pool.
    draws: u32,
    /// True once [`LeaseState::total`] was read after the last draw that got too little.
    has_total: bool,
}

/// Total and drawn amount of a lease that did not change from one heartbeat to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnchangedLease {
    total: i64,
    drawn: i64,
    /// Number of the last operation of the write queue when the lease was first found unchanged; `None` until then.
    ticket: Option<u64>,
}

/// Lease of one wallet or budget.
#[derive(Debug, Default)]
pub(super) struct LeaseState {
    /// Lease at the time when this state was created, plus the amount drawn since then, minus the returned amount.
    pub(super) drawn: i64,
    /// Part of the drawn amount that was spent at the last check.
    pub(super) spent: i64,
    /// Amount spent in the last observed second.
    pub(super) spent_last_second: i64,
    /// Smoothed spending per second, in eighths of the unit.
    pub(super) rate: i64,
    /// Result of the last draw if it got too little; otherwise `None`.
    empty: Option<EmptyPool>,
    /// Total of all members, their leases included: the balance of the account after the last draw that got too little,
    /// or the unspent amount of the budget after the last draw.
    total: i64,
    /// Time of the last refusal of a request although the other members hold enough for it; `None` without one.
    pub(super) refused_at: Option<Instant>,
    /// Amount that the refused request needed.
    pub(super) refused_price: i64,
    /// True if an amount was drawn since the last check: the request that needs it may not have reserved it yet.
    pub(super) is_fresh: bool,
    /// Number of heartbeats in a row that had no time to draw for this lease.
    pub(super) skipped_draws: u32,
    /// True if the outcome of a draw is unknown.
    pub(super) uncertain: bool,
    /// Last observation of a lease that has a draw with an unknown outcome; `None` without one.
    unchanged: Option<UnchangedLease>,
    /// Lock that a request holds while it draws; other requests wait for its result.
    pub(super) drawing: Arc<AsyncMutex<()>>,
}

impl LeaseState {
    /// Creates the state of a lease, of which nothing counts as spent.
    pub(super) fn from_amount(amount: i64) -> Self {
        Self { drawn: amount, ..Self::default() }
    }

    /// Records a draw that needed at least `least` and got `part`.
    pub(super) fn record_draw(&mut self, least: i64, part: DrawnAmount, now: Instant) {
        self.drawn = self.drawn.saturating_add(part.amount);
        self.is_fresh |= part.amount > 0;
        let before = self.empty.map_or(0, |empty| empty.draws);
        let draws = if part.rest > 0 { 0 } else { before.saturating_add(1) };
        let empty = EmptyPool { found_at: now, rest: part.rest, draws, has_total: false };
        self.empty = (part.amount < least).then_some(empty);
    }

    /// Records the total of all members after a draw: the balance of the account, or the unspent amount of the budget.
    pub(super) const fn record_fleet_total(&mut self, total: i64) {
        self.total = total;
        if let Some(empty) = &mut self.empty {
            empty.has_total = true;
        }
    }

    /// Returns the last recorded total of all members; 0 before the first.
    pub(super) const fn recorded_fleet_total(&self) -> i64 {
        self.total
    }

    /// Observes the lease at a heartbeat; `pushed` and `written` are the numbers of the last operation of the write
    /// queue and of the last written one. Once the lease has not changed for one heartbeat, all its charges are queued,
    /// and `pushed` is recorded. Returns true when `written` reaches that number: every charge of the lease is written.
    pub(super) fn has_all_charges_written(&mut self, total: i64, pushed: u64, written: u64) -> bool {
        match &mut self.unchanged {
            Some(seen) if (seen.total, seen.drawn) == (total, self.drawn) => {
                written >= *seen.ticket.get_or_insert(pushed)
            }
            _ => {
                self.unchanged = Some(UnchangedLease { total, drawn: self.drawn, ticket: None });
                false
            }
        }
    }

    /// Adds the amount that a draw with an unknown outcome got after all.
    pub(super) const fn resolve_uncertain_draw(&mut self, missing: i64) {
        self.drawn = self.drawn.saturating_add(missing);
        (self.uncertain, self.unchanged) = (false, None);
    }

    /// Excludes what was spent of the lease until now from its spending per second; `balance` is the unspent amount of
    /// the lease, held amounts included.
    pub(super) fn reset_spending_baseline(&mut self, balance: i64) {
        self.spent = self.drawn.saturating_sub(balance);
    }

    /// Records the spending of a second; `balance` is the unspent amount of the lease, held amounts included.
    pub(super) fn update_spending_rate(&mut self, balance: i64) {
        let spent = self.drawn.saturating_sub(balance);
        self.spent_last_second = spent.saturating_sub(self.spent).max(0);
        self.spent = spent;
        // The rate decreases by at least one unit, so that the rate of an idle account becomes 0.
        let decay = (self.rate >> RATE_SHIFT).max(1).min(self.rate);
        self.rate = self.rate.saturating_sub(decay).saturating_add(self.spent_last_second);
    }

    /// Returns the amount to lease in advance: the spending of `advance_seconds` at the current rate.
    pub(super) fn target_amount(&self, advance_seconds: i64) -> i64 {
        self.rate.saturating_mul(advance_seconds) >> RATE_SHIFT
    }

    /// Returns true if a request was refused lately although the other members hold enough for it.
    pub(super) fn has_recent_refusal(&self) -> bool {
        self.refused_at.is_some_and(|at| at.elapsed() < WANTED_TIME)
    }

    /// Returns the target size of the lease after a recent refusal, or 0 without one. The target is twice the price
    /// of the refused request, because a lease draws only below half of its target.
    pub(super) fn target_after_refusal(&self) -> i64 {
        if self.has_recent_refusal() { self.refused_price.saturating_mul(2) } else { 0 }
    }

    /// Returns true if a draw within the last [`EMPTY_POOL_CACHE_TIME`] left less than `missing` in the pool. Returns
    /// false until the fleet total was recorded after that draw, because a refusal needs this total.
    pub(super) fn is_pool_known_insufficient(&self, missing: i64, now: Instant) -> bool {
        self.empty.is_some_and(|empty| {
            empty.has_total && missing > empty.rest && empty.age(now) < EMPTY_POOL_CACHE_TIME
        })
    }

    /// Returns true if a heartbeat may draw: an empty pool is read less and less often, unless other members return
    /// their leases for a request that was refused.
    pub(super) fn may_refill(&self, now: Instant) -> bool {
        let Some(empty) = self.empty.filter(|empty| empty.rest <= 0) else { return true };
        empty.age(now) >= if self.has_recent_refusal() { EMPTY_POOL_CACHE_TIME } else { empty.pause() }
    }

    /// Forgets that the pool was found empty.
    #[cfg(test)]
    pub(super) fn forget_empty_pool(&mut self) {
        self.empty = None;
    }
}

impl EmptyPool {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.found_at)
    }

    /// Returns the time after which a heartbeat reads the pool again.
    fn pause(&self) -> Duration {
        EMPTY_POOL_PAUSE.saturating_mul(1 << self.draws.min(MAX_DOUBLINGS))
    }
}

/// Change of one lease: none, an amount to draw, or an amount to return.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeaseChange {
    Nothing,
    Draw(i64),
    Return(i64),
}

/// Decides about a lease whose pool another member wants: all except the spending of the last second returns.
pub(super) const fn contended_lease_change(available: i64, second: i64) -> LeaseChange {
    if available > second {
        return LeaseChange::Return(available.saturating_sub(second));
    }
    LeaseChange::Nothing
}

/// Decides about a lease: if less than half of `target` is available, it draws the missing part of `target`; if more
/// than twice `target` is available, it returns all except `target`.
pub(super) const fn lease_change(available: i64, target: i64) -> LeaseChange {
    if available < target / 2 {
        return LeaseChange::Draw(target.saturating_sub(available));
    }
    if available > target.saturating_mul(2) {
        return LeaseChange::Return(available.saturating_sub(target));
    }
    LeaseChange::Nothing
}
