//! Leases of budgets: a member admits a request of a key or an account with a budget only against its lease.

use super::super::Ledger;
use super::Leases;
use super::draws::{DRAW_TIMEOUT, LeaseCoverage, MAX_RESERVE_ATTEMPTS};
use super::pool::{LeasedBalance, LeasedPool};
use crate::auth::key_cache::KeyCache;
use crate::auth::limited_owner::LeasedBudget;
use crate::limits::rate_limit::{KeyLimitReservation, LimitViolation, ProvisionalPermit, reserve_limits};
use penstock_core::ApiError;
use penstock_limits::CostEstimate;
use std::sync::Arc;
use tokio::time;

impl Leases {
    /// Returns for each budget true if the leases of all members together exceed its unspent amount. In this case,
    /// this member has to draw its lease again. Returns true for all budgets if the store fails. Blocks.
    fn are_overleased(&self, budgets: &[(LeasedBudget, i64)]) -> Vec<bool> {
        let limits: Vec<_> = budgets.iter().map(|(budget, _)| (budget.pool(), budget.limit())).collect();
        let now = self.clock.calendar_now().as_secs();
        self.member.are_budgets_overleased(&limits, now).unwrap_or_else(|_| vec![true; budgets.len()])
    }
}

impl Ledger {
    /// Restores the leases of budgets that the previous process of this member had. Leases of unknown keys and accounts
    /// return to their pools when the membership ends. The lease of a budget that was lowered meanwhile is recalled.
    /// Blocks.
    pub fn restore_budget_leases(&self, cache: &KeyCache) {
        let Some(leases) = &self.leases else { return };
        let previous = std::mem::take(&mut *leases.previous_budgets.lock()).into_iter();
        let known =
            previous.filter_map(|(pool, amount)| Some((LeasedBudget::find_by_pool(cache, &pool)?, amount)));
        let known: Vec<(LeasedBudget, i64)> = known.collect();
        let recalled = leases.are_overleased(&known);
        for ((budget, amount), is_recalled) in known.into_iter().zip(recalled) {
            budget.add(amount);
            if is_recalled {
                budget.mark_recalled();
            }
            leases.restore(LeasedPool::Budget(budget), amount);
        }
    }

    /// Reserves the possible cost of a request from its key and account as
    /// [`crate::limits::rate_limit::reserve_limits`] does. If the request is refused only because this member's
    /// budget leases are too small, the member draws for it from the pools. A request that another limit refuses, or
    /// that exceeds the known rest of a budget, draws nothing.
    ///
    /// # Errors
    /// Returns the refusal, and the limit that caused it. No limit caused it (`None`) if this member may not spend its
    /// leases any more, or if the database does not answer in time; the refusal is then a 503.
    pub async fn reserve_limits_with_draw(
        self: &Arc<Self>,
        mut entry: ProvisionalPermit,
        cost: &CostEstimate,
    ) -> Result<KeyLimitReservation, (Option<LimitViolation>, ApiError)> {
        let refuse = |(hit, refusal)| (Some(hit), refusal);
        let Some(leases) = self.leases.as_ref().filter(|_| cost.money.0 > 0) else {
            return reserve_limits(&mut entry, cost).map_err(refuse);
        };
        let deadline = time::Instant::now() + DRAW_TIMEOUT;
        for _ in 1..MAX_RESERVE_ATTEMPTS {
            // The lease term may also end during a draw.
            leases.ensure_spendable().map_err(|refusal| (None, refusal))?;
            let (hit, refusal) = match reserve_limits(&mut entry, cost) {
                Err(refused) if refused.0.is_lease => refused,
                reserved => return reserved.map_err(refuse),
            };
            let is_covered = self.draw_for_budgets(leases, &entry, cost.money.0, deadline).await;
            if !is_covered.map_err(|refusal| (None, refusal))? {
                return Err((Some(hit), refusal));
            }
            // Another request may reserve the drawn amount first, so the loop draws again.
        }
        reserve_limits(&mut entry, cost).map_err(refuse)
    }

    /// Draws until the deadline for the budgets whose leases do not cover a request of this price. Returns false if a
    /// pool has too little, or if another member receives it.
    async fn draw_for_budgets(
        self: &Arc<Self>,
        leases: &Leases,
        entry: &ProvisionalPermit,
        price: i64,
        deadline: time::Instant,
    ) -> Result<bool, ApiError> {
        let cost = u64::try_from(price).unwrap_or(0);
        let lacking = LeasedBudget::uncovered_budgets(entry.principal(), cost);
        let lacking: Vec<_> = lacking.into_iter().map(LeasedBalance::Budget).collect();
        if let Some(empty) = lacking.iter().find(|balance| leases.is_pool_known_insufficient(balance, price))
        {
            leases.note_refused(empty, price);
            return Ok(false);
        }
        for (index, balance) in lacking.iter().enumerate() {
            if self.draw_until_covered(leases, balance, price, deadline).await? != LeaseCoverage::Covered {
                leases.note_refused(balance, price);
                // The amounts that were drawn for the other budgets of the request are no longer needed, so they
                // return with the next heartbeat.
                for drawn in lacking.iter().take(index) {
                    leases.with_state(drawn, |state| state.is_fresh = false);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}
