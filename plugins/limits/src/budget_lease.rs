//! Leased parts of the budgets of a key or an account, in a fleet whose gateways share these budgets.
//!
//! A gateway admits a request with a cost only if its leased part of each budget covers the cost. A leased part stays
//! valid after midnight: it is then a part of the budget of the new day.
//!
//! ```text
//! part in the store = left + unwritten
//! ```
//! A charge may exceed its reservation, so `left` may be negative. The excess is written to the store as spending,
//! but is not subtracted from the leased part in the store.

use crate::meter::{CostEstimate, LimitExceeded, LimitKind, UsageLimits, UsageMeter, to_micro_credits};
use crate::token_bucket::RetryAfter;
use penstock_core::calendar::BudgetPeriod;
use std::time::Duration;

/// Leased part of one budget, in micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetLease {
    /// Amount that is leased and not spent yet; negative after a charge above its reservation.
    pub(crate) left: i64,
    /// Amount spent after the spending was last written to the store.
    unwritten: i64,
    /// True if the budget was lowered after the part was leased: the part may not be spent until a further lease
    /// succeeds.
    is_recalled: bool,
}

/// Leased parts of the budgets of one key or account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetLeases {
    day: BudgetLease,
    month: BudgetLease,
}

/// Spending that is being written to the store, split into the amounts that the leased parts cover and the excess, in
/// micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseSpending {
    /// Amounts by which the leased parts of the day and the month decrease in the store.
    pub covered: (i64, i64),
    /// Amounts that were spent beyond the leased parts of the day and the month.
    excess: (i64, i64),
}

impl BudgetLease {
    /// Returns the amount that may be reserved in addition to `reserved`; negative if more is reserved than is left.
    pub(crate) fn available(&self, reserved: u64) -> i64 {
        self.left.saturating_sub_unsigned(reserved)
    }

    /// Returns true if the leased part can pay a request of this cost and is not recalled.
    pub(crate) fn covers(&self, reserved: u64, cost: u64) -> bool {
        let available = u64::try_from(self.available(reserved)).unwrap_or(0);
        !self.is_recalled && available >= cost
    }

    /// Returns the leased part as the store records it: before the unwritten spending is subtracted.
    pub(crate) const fn stored_amount(&self) -> i64 {
        self.left.saturating_add(self.unwritten)
    }

    fn spend(&mut self, amount: i64) {
        self.left = self.left.saturating_sub(amount);
        self.unwritten = self.unwritten.saturating_add(amount);
    }

    /// Removes and returns the unwritten spending: the amount that the leased part covers, and the excess.
    fn take_unwritten(&mut self) -> (i64, i64) {
        let covered = self.unwritten.min(self.stored_amount().max(0));
        let excess = self.unwritten.saturating_sub(covered);
        self.left = self.left.saturating_add(excess);
        self.unwritten = 0;
        (covered, excess)
    }

    fn put_back_unwritten(&mut self, covered: i64, excess: i64) {
        self.left = self.left.saturating_sub(excess);
        self.unwritten = self.unwritten.saturating_add(covered).saturating_add(excess);
    }
}

impl BudgetLeases {
    /// Returns the leased part of the budget of a period.
    pub(crate) const fn period_lease(&self, period: BudgetPeriod) -> &BudgetLease {
        match period {
            BudgetPeriod::Day => &self.day,
            BudgetPeriod::Month => &self.month,
        }
    }

    /// Returns the leased part of the budget of a period, for changes.
    pub(crate) const fn period_lease_mut(&mut self, period: BudgetPeriod) -> &mut BudgetLease {
        match period {
            BudgetPeriod::Day => &mut self.day,
            BudgetPeriod::Month => &mut self.month,
        }
    }

    /// Subtracts a spent amount from the leased part of each budget that is set.
    pub(crate) fn spend(&mut self, limits: &UsageLimits, amount: u64) {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
            if limits.budget(period).is_some() {
                self.period_lease_mut(period).spend(amount);
            }
        }
    }

    /// Marks the leased parts of those budgets as recalled that are lower than before: the parts of all gateways
    /// together may exceed the lower budget.
    pub(crate) fn mark_lowered_recalled(&mut self, before: &UsageLimits, after: &UsageLimits) {
        for period in [BudgetPeriod::Day, BudgetPeriod::Month] {
            if after.budget(period).is_some_and(|after| before.budget(period).is_none_or(|was| after < was)) {
                self.period_lease_mut(period).is_recalled = true;
            }
        }
    }

    /// Adds an amount that was leased when the budget was `drawn_for`. The leased part becomes valid if the budget is
    /// still at least as high. A recalled part stays recalled if the amount is 0.
    pub(crate) fn add_drawn_amount(
        &mut self,
        limits: &UsageLimits,
        period: BudgetPeriod,
        amount: i64,
        drawn_for: u64,
    ) {
        let lease = self.period_lease_mut(period);
        lease.left = lease.left.saturating_add(amount);
        // Only an amount above 0 proves that the parts of all gateways together are within the budget.
        let was_recalled = lease.is_recalled && amount == 0;
        lease.is_recalled = was_recalled || limits.budget(period).is_none_or(|limit| limit.get() < drawn_for);
    }

    /// Removes and returns the unreserved amount of a recalled part; 0 if the part is not recalled.
    pub(crate) fn take_recalled(&mut self, period: BudgetPeriod, reserved: u64) -> i64 {
        let lease = self.period_lease_mut(period);
        let spare = if lease.is_recalled { lease.available(reserved).max(0) } else { 0 };
        lease.left = lease.left.saturating_sub(spare);
        spare
    }

    /// Removes and returns the spending that the store does not have yet.
    pub(crate) fn take_unwritten(&mut self) -> LeaseSpending {
        let (day, month) = (self.day.take_unwritten(), self.month.take_unwritten());
        LeaseSpending { covered: (day.0, month.0), excess: (day.1, month.1) }
    }

    /// Undoes [`BudgetLeases::take_unwritten`] after a failed write.
    pub(crate) fn restore_unwritten(&mut self, written: LeaseSpending) {
        self.day.put_back_unwritten(written.covered.0, written.excess.0);
        self.month.put_back_unwritten(written.covered.1, written.excess.1);
    }
}

/// Methods for budgets that the gateways of a fleet lease in parts.
impl UsageMeter {
    /// Requires a leased part of the budgets for every later request with a cost.
    pub fn enable_budget_leases(&mut self) {
        self.leases.get_or_insert_default();
    }

    /// Returns true if there is no budget of the period, or if the leased part covers this cost.
    #[must_use]
    pub fn is_cost_covered(&self, limits: &UsageLimits, period: BudgetPeriod, cost: u64) -> bool {
        limits.budget(period).is_none() || self.lease(period).covers(self.reserved, cost)
    }

    /// Returns the leased micro-credits that are neither spent nor reserved; negative if more is reserved than is left.
    #[must_use]
    pub fn unreserved_lease(&self, period: BudgetPeriod) -> i64 {
        self.lease(period).available(self.reserved)
    }

    /// Returns the leased micro-credits that are not spent; negative after a charge above its reservation.
    #[must_use]
    pub fn unspent_lease(&self, period: BudgetPeriod) -> i64 {
        self.lease(period).left
    }

    /// Returns the leased part as the store records it: before the unwritten spending is subtracted.
    #[must_use]
    pub fn stored_lease(&self, period: BudgetPeriod) -> i64 {
        self.lease(period).stored_amount()
    }

    /// Returns true if the leased part may not be spent, because the budget was lowered or no longer exists.
    #[must_use]
    pub fn is_lease_recalled(&self, limits: &UsageLimits, period: BudgetPeriod) -> bool {
        limits.budget(period).is_none() || self.lease(period).is_recalled
    }

    /// Adds an amount to the leased part.
    pub fn add_lease(&mut self, period: BudgetPeriod, amount: i64) {
        let lease = self.leases.get_or_insert_default().period_lease_mut(period);
        lease.left = lease.left.saturating_add(amount);
    }

    /// Adds an amount that was leased when the budget was `drawn_for`. A recalled part becomes valid again if the
    /// amount is above 0 and the budget is still at least as high.
    pub fn add_drawn_lease(
        &mut self,
        limits: &UsageLimits,
        period: BudgetPeriod,
        amount: i64,
        drawn_for: u64,
    ) {
        self.leases.get_or_insert_default().add_drawn_amount(limits, period, amount, drawn_for);
    }

    /// Subtracts an amount that goes back to the fleet from the leased part, if that much is unreserved; returns true
    /// on success.
    pub fn try_reduce_lease(&mut self, period: BudgetPeriod, amount: i64) -> bool {
        let is_there = self.unreserved_lease(period) >= amount;
        if is_there {
            self.add_lease(period, amount.saturating_neg());
        }
        is_there
    }

    /// Removes and returns the unreserved amount of a recalled part, which goes back to the fleet; 0 if the part is not
    /// recalled.
    pub fn take_recalled_lease(&mut self, period: BudgetPeriod) -> i64 {
        let reserved = self.reserved;
        self.leases.as_mut().map_or(0, |leases| leases.take_recalled(period, reserved))
    }

    /// Marks the leased part of a budget as recalled: it may not be spent until a further lease succeeds. Its amount
    /// stays until [`UsageMeter::take_recalled_lease`] removes it.
    pub fn mark_lease_recalled(&mut self, period: BudgetPeriod) {
        self.leases.get_or_insert_default().period_lease_mut(period).is_recalled = true;
    }

    /// Marks the leased parts of those budgets as recalled that a change of the limits lowers.
    pub fn mark_lowered_leases_recalled(&mut self, before: &UsageLimits, after: &UsageLimits) {
        if let Some(leases) = &mut self.leases {
            leases.mark_lowered_recalled(before, after);
        }
    }

    /// Removes and returns the spending of the leased parts that the store does not have yet; the caller has to write
    /// it.
    pub fn take_unwritten_spending(&mut self) -> LeaseSpending {
        self.leases.as_mut().map(|leases| leases.take_unwritten()).unwrap_or_default()
    }

    /// Undoes [`UsageMeter::take_unwritten_spending`] after a failed write.
    pub fn restore_unwritten_spending(&mut self, written: LeaseSpending) {
        if let Some(leases) = &mut self.leases {
            leases.restore_unwritten(written);
        }
    }

    /// Returns the exceeded budget with the longest wait. A budget also counts as exceeded if its leased part does
    /// not cover the cost.
    pub(crate) fn exceeded_budget(
        &self,
        limits: &UsageLimits,
        cost: &CostEstimate,
        now: Duration,
    ) -> Option<LimitExceeded> {
        let money = to_micro_credits(cost.money);
        let over = [BudgetPeriod::Day, BudgetPeriod::Month].into_iter().filter_map(|period| {
            let budget = limits.budget(period)?.get();
            // Once the budget is spent, a request without cost is refused too.
            let spent = self.spend.spent_in(period, now).saturating_add(money.max(1));
            let elsewhere = self.shared.as_deref().map_or(0, |shared| shared.reserved);
            if spent.saturating_add(self.reserved).saturating_add(elsewhere) <= budget {
                let is_covered = self.is_lease_enough(period, money);
                let (limit, retry_after) = (LimitKind::Budget(period), RetryAfter::OnLease);
                return (!is_covered).then_some(LimitExceeded { limit, maximum: budget, retry_after });
            }
            let wait = if money > budget {
                RetryAfter::Never
            } else if spent <= budget {
                // The wait ends when another request completes, because its final cost may be lower than its
                // reservation.
                RetryAfter::OnRelease
            } else {
                RetryAfter::After(period.end(now).saturating_sub(now))
            };
            Some(LimitExceeded { limit: LimitKind::Budget(period), maximum: budget, retry_after: wait })
        });
        over.max_by_key(|denied| denied.retry_after)
    }

    /// Returns true if the cost is 0, if the leased part of the budget covers it, or if budgets are not leased.
    fn is_lease_enough(&self, period: BudgetPeriod, money: u64) -> bool {
        money == 0
            || self
                .leases
                .as_deref()
                .is_none_or(|leases| leases.period_lease(period).covers(self.reserved, money))
    }

    fn lease(&self, period: BudgetPeriod) -> BudgetLease {
        self.leases.as_deref().map(|leases| *leases.period_lease(period)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_spending_is_taken_from_the_part_and_the_excess_is_not() {
        for (left, spent, covered, after) in
            [(100, 30, 30, 70), (100, 100, 100, 0), (100, 130, 100, 0), (0, 5, 0, 0), (-7, 5, 0, -7)]
        {
            let mut lease = BudgetLease { left, ..BudgetLease::default() };
            lease.spend(spent);
            assert_eq!(lease.stored_amount(), left, "the store knows nothing of the charge");
            let before = lease;
            let (taken, excess) = lease.take_unwritten();
            assert_eq!((taken, lease.left, lease.stored_amount()), (covered, after, after), "{left} {spent}");
            lease.put_back_unwritten(taken, excess);
            assert_eq!(lease, before);
        }
    }

    #[test]
    fn a_draw_between_an_excess_and_its_writing_counts_once() {
        let mut lease = BudgetLease { left: 100, ..BudgetLease::default() };
        lease.spend(130);
        lease.left += 50;
        assert_eq!((lease.stored_amount(), lease.take_unwritten()), (150, (130, 0)));
        assert_eq!((lease.left, lease.stored_amount()), (20, 20));
    }
}
