//! Limits of one key or one account, and their usage.

use parking_lot::Mutex;
use penstock_limits::{
    BudgetPeriod, LeaseSpending, PeerUsage, RateLimitStatus, SpendTotals, UsageLimits, UsageMeter,
    UsageTotals,
};
use penstock_storage::keys::KeyLimits;
use penstock_storage::spend::SpendRecord;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Limits of one key or one account, and their usage. Times are those of the calendar clock.
#[derive(Debug, Default)]
pub struct UsageLimiter(pub(crate) Mutex<LimiterState>);

/// Limits of a key or account, their usage, and the spending in the store.
#[derive(Debug, Default)]
pub(crate) struct LimiterState {
    pub(crate) limits: UsageLimits,
    pub(crate) meter: UsageMeter,
    /// Spending of this and earlier processes that is already in the store.
    written: SpendRecord,
}

/// Spending that has to be written.
#[derive(Clone, Copy, Debug)]
pub struct UnwrittenSpending {
    /// Spending since the last [`UsageLimiter::take_unwritten_spending`].
    pub spent: SpendRecord,
    /// Part of the unwritten spending that was paid from leased parts of the budgets.
    pub leased: LeaseSpending,
    /// Spending that was in the store before, for [`UsageLimiter::restore_unwritten_spending`].
    before: SpendRecord,
}

impl UsageLimiter {
    /// Creates the limiter of a key or account. Its spending continues from the stored one; all other usage starts at
    /// zero.
    #[must_use]
    pub fn new(limits: &KeyLimits, spent: Option<&SpendRecord>) -> Self {
        let spend = spent
            .map(|spent| SpendTotals::from_stored(spent.day, spent.month, Duration::from_secs(spent.at)));
        Self(Mutex::new(LimiterState {
            limits: limits_of(limits),
            meter: UsageMeter::from_stored_spend(spend.unwrap_or_default()),
            written: spent.copied().unwrap_or_default(),
        }))
    }

    /// Replaces the limits; the recorded usage stays.
    pub fn replace_limits(&self, limits: &KeyLimits) {
        let LimiterState { limits: before, meter, .. } = &mut *self.0.lock();
        let after = limits_of(limits);
        meter.mark_lowered_leases_recalled(before, &after);
        *before = after;
    }

    /// Returns the micro-credits spent in the current day and month; `now` is a time of the calendar clock.
    #[must_use]
    pub fn spend_record(&self, now: Duration) -> SpendRecord {
        let inner = self.0.lock();
        let within = |period| inner.meter.spend_totals().spent_in(period, now);
        SpendRecord { day: within(BudgetPeriod::Day), month: within(BudgetPeriod::Month), at: now.as_secs() }
    }

    /// Returns the micro-credits that the whole fleet has spent in the current day and month: `fleet_total`, the record
    /// in the store, plus the spending of this process that is not written yet.
    #[must_use]
    pub fn with_unwritten_spending(&self, fleet_total: SpendRecord, now: Duration) -> SpendRecord {
        let own = self.spend_record(now).spent_since_record(self.0.lock().written);
        let total = fleet_total.merged_with(own);
        let within = |period| total.spent_in(period, now.as_secs());
        SpendRecord { day: within(BudgetPeriod::Day), month: within(BudgetPeriod::Month), at: now.as_secs() }
    }

    /// Removes and returns the micro-credits spent since the last call, which have to be written.
    #[must_use]
    pub fn take_unwritten_spending(&self, now: Duration) -> UnwrittenSpending {
        let mut inner = self.0.lock();
        let within = |period| inner.meter.spend_totals().spent_in(period, now);
        let before = inner.written;
        // If the clock went back, the spending still counts for the newest day.
        let at = now.as_secs().max(before.at);
        let spent = SpendRecord { day: within(BudgetPeriod::Day), month: within(BudgetPeriod::Month), at };
        inner.written = spent;
        UnwrittenSpending {
            spent: spent.spent_since_record(before),
            leased: inner.meter.take_unwritten_spending(),
            before,
        }
    }

    /// Reverts the last [`UsageLimiter::take_unwritten_spending`], so that its amounts are returned again later.
    pub fn restore_unwritten_spending(&self, taken: &UnwrittenSpending) {
        let mut inner = self.0.lock();
        inner.written = taken.before;
        inner.meter.restore_unwritten_spending(taken.leased);
    }

    /// Returns true if there is a limit or a budget.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.0.lock().limits != UsageLimits::default()
    }

    /// Returns true if there is a budget.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        let inner = self.0.lock();
        inner.limits.day.is_some() || inner.limits.month.is_some()
    }

    /// Returns this process's own totals of usage, to be sent to the other members of a fleet.
    #[must_use]
    pub fn usage_totals(&self) -> UsageTotals {
        self.0.lock().meter.usage_totals()
    }

    /// Limits this member of a fleet to an equal part of each limit until members have shared their usage for the first
    /// time, and lets it spend from budgets only what it has leased.
    pub fn divide_limits(&self, members: u32, now: Duration) {
        let LimiterState { limits, meter, .. } = &mut *self.0.lock();
        meter.begin_limit_sharing(limits, members, now);
        meter.enable_budget_leases();
    }

    /// Applies the usage of the other members of a fleet.
    pub fn apply_peer_usage(&self, peers: &PeerUsage, now: Duration) {
        let LimiterState { limits, meter, .. } = &mut *self.0.lock();
        meter.apply_peer_usage(limits, peers, now);
    }

    /// Replaces the known spending of the store with `written`, the spending of all members of a fleet. Spending of
    /// this member that is not written yet is added.
    pub fn replace_written_spend(&self, written: SpendRecord, now: Duration) {
        let mut inner = self.0.lock();
        let within = |period| inner.meter.spend_totals().spent_in(period, now);
        let at = now.as_secs().max(inner.written.at);
        let spent = SpendRecord { day: within(BudgetPeriod::Day), month: within(BudgetPeriod::Month), at };
        let total = written.merged_with(spent.spent_since_record(inner.written));
        inner.meter.replace_with_fleet_spend(SpendTotals::from_stored(
            total.day,
            total.month,
            Duration::from_secs(total.at),
        ));
        inner.written = written;
    }

    /// Returns the number of admitted requests since startup.
    #[must_use]
    pub fn admitted_request_count(&self) -> u64 {
        self.0.lock().meter.admitted_count()
    }

    /// Returns the number of requests in flight, the number of tokens by which the token limit is exceeded, and the
    /// status of the limits per minute.
    #[must_use]
    pub fn current_status(&self, now: Duration) -> (u32, u64, RateLimitStatus) {
        let inner = self.0.lock();
        let status = inner.meter.rate_limit_status(&inner.limits, now);
        (inner.meter.in_flight(), inner.meter.token_debt(&inner.limits, now), status)
    }
}

/// Converts stored limits. Zero is rejected when limits are read; a stored zero counts as no limit.
fn limits_of(limits: &KeyLimits) -> UsageLimits {
    let some = |limit: Option<u64>| limit.and_then(NonZeroU64::new);
    UsageLimits {
        requests: some(limits.requests_per_minute),
        tokens: some(limits.tokens_per_minute),
        concurrent: limits.concurrent.and_then(NonZeroU32::new),
        day: some(limits.budget_per_day),
        month: some(limits.budget_per_month),
    }
}
