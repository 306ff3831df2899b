//! Leases of budgets: a member admits a request of a key or an account with a budget only against its part.

use super::super::Ledger;
use super::super::current_balance::database_unavailable;
use super::draws::{DRAW_TIMEOUT, MAX_RESERVATIONS};
use super::pool::{LeasedBalance, LeasedPool};
use crate::auth::key_cache::KeyCache;
use crate::auth::limited_owner::LeasedBudget;
use crate::limits::rate_limit::{KeyLimitReservation, LimitViolation, ProvisionalPermit, reserve_limits};
use penstock_core::ApiError;
use penstock_limits::CostEstimate;
use std::sync::Arc;
use std::time::Instant;
use tokio::time;

impl Ledger {
    /// Gives the parts of budgets that the previous process of this member had to the keys and accounts. Those of
    /// unknown ones return to their pools when the membership ends.
    pub fn restore_budgets(&self, cache: &KeyCache) {
        let Some(leases) = &self.leases else { return };
        for (pool, amount) in std::mem::take(&mut *leases.previous_budgets.lock()) {
            if let Some(budget) = LeasedBudget::find(cache, &pool) {
                budget.add(amount);
                leases.restore(LeasedPool::Budget(budget), amount);
            }
        }
    }

    /// Reserves the possible cost of a request from its key and account as
    /// [`crate::limits::rate_limit::reserve_limits`] does; a member of a fleet draws for it if its parts of their
    /// budgets do not cover it.
    ///
    /// # Errors
    /// Returns the refusal of a limit, and which it is; 503 if this member may not spend its leases any more, or if the
    /// database does not answer in time.
    pub async fn reserve_limits_with_draw(
        self: &Arc<Self>,
        mut entry: ProvisionalPermit,
        cost: &CostEstimate,
    ) -> Result<KeyLimitReservation, (Option<LimitViolation>, ApiError)> {
        let refuse = |(hit, refusal)| (Some(hit), refusal);
        if self.leases.is_none() {
            return reserve_limits(&mut entry, cost).map_err(refuse);
        }
        let deadline = time::Instant::now() + DRAW_TIMEOUT;
        for _ in 1..MAX_RESERVATIONS {
            let is_covered = self.ensure_budgets(&entry, cost, deadline).await;
            let is_covered = is_covered.map_err(|refusal| (None, refusal))?;
            match reserve_limits(&mut entry, cost) {
                // Another request has reserved the amount meanwhile.
                Err((hit, _)) if is_covered && hit.is_lease => {}
                reserved => return reserved.map_err(refuse),
            }
        }
        reserve_limits(&mut entry, cost).map_err(refuse)
    }

    /// Draws until the deadline for the budgets whose parts do not cover a request. Returns false if a pool has too
    /// little.
    async fn ensure_budgets(
        self: &Arc<Self>,
        entry: &ProvisionalPermit,
        cost: &CostEstimate,
        deadline: time::Instant,
    ) -> Result<bool, ApiError> {
        let (Some(leases), Ok(price @ 1..)) = (&self.leases, u64::try_from(cost.money.0)) else {
            return Ok(true);
        };
        if !leases.member.may_spend_leases(Instant::now()) {
            return Err(database_unavailable());
        }
        for budget in LeasedBudget::lacking(entry.principal(), price) {
            let balance = LeasedBalance::Budget(budget);
            if !self.ensure_covered(leases, &balance, cost.money.0, deadline).await? {
                leases.note_refused(&balance, cost.money.0);
                return Ok(false);
            }
        }
        Ok(true)
    }
}
