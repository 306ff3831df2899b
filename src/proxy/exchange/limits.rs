//! Reservation of an exchange in the limits and budgets of its key and account.

use super::Exchange;
use crate::limits::rate_limit::{self, ProvisionalPermit, TypicalKeyUsage};
use penstock_core::ApiError;
use penstock_limits::{ActualCost, CostEstimate};

impl Exchange<'_> {
    /// Replaces the provisional permit with a reservation in the limits of the key and the account, for the maximum
    /// usage of the request. Called before anything is sent. The end of the exchange releases the reservation; usage
    /// that was passed to [`Exchange::settle_limits`] stays counted.
    ///
    /// # Errors
    /// Returns a 429 for a limit and a 402 for a budget.
    pub fn reserve_limits(
        &mut self,
        mut entry: ProvisionalPermit,
        cost: &CostEstimate,
    ) -> Result<(), ApiError> {
        let pass = rate_limit::reserve_limits(&mut entry, cost);
        self.limit_reservation = Some(pass.map_err(|hit| self.limit_refusal(hit))?);
        Ok(())
    }

    /// Reserves like [`Exchange::reserve_limits`], for a request with a cost. If the leased parts of the budgets do
    /// not cover the cost, a member of a fleet first leases a further part of the budgets from the database.
    ///
    /// # Errors
    /// Same as for [`Exchange::reserve_limits`]; a 503 if the database of a fleet does not answer.
    pub async fn reserve_limits_with_draw(
        &mut self,
        entry: ProvisionalPermit,
        cost: &CostEstimate,
    ) -> Result<(), ApiError> {
        let pass = self.app.ledger.reserve_limits_with_draw(entry, cost).await;
        let refuse = |(hit, refusal): (Option<_>, _)| match hit {
            Some(hit) => self.limit_refusal((hit, refusal)),
            None => refusal,
        };
        self.limit_reservation = Some(pass.map_err(refuse)?);
        Ok(())
    }

    /// Acquires a provisional permit of the limits before any work is done. A request that the limits refuse whatever
    /// it costs is refused here. Also returns the usual usage of the key.
    ///
    /// # Errors
    /// Same as for [`Exchange::reserve_limits`].
    pub fn acquire_provisional_limits_permit(
        &self,
    ) -> Result<(ProvisionalPermit, TypicalKeyUsage), ApiError> {
        let member = &self.app.stores.fleet;
        if member.has_fleet() {
            self.app.key_cache.start_limit_sharing(&self.principal, member);
        }
        rate_limit::acquire_provisional_limits_permit(&self.principal, self.work, self.app.clock)
            .map_err(|hit| self.limit_refusal(hit))
    }

    /// Counts a refusal by a limit, and returns it. The refusal of a batch line that is tried again later does not count,
    /// because the line only waits.
    fn limit_refusal(&self, (hit, refusal): (rate_limit::LimitViolation, ApiError)) -> ApiError {
        let is_retried = refusal.is_caused_by_reservations || refusal.retry_after.is_some();
        if !is_retried || self.caller.in_process_line().is_none() {
            self.app.metrics.count_limit_refusal(hit.limit.name(), hit.owner.name());
        }
        refusal
    }

    /// Settles the limits with the actual usage, in place of the reservation.
    pub fn settle_limits(&mut self, used: &ActualCost) {
        let Some(pass) = &mut self.limit_reservation else { return };
        pass.settle(used);
        if used.money.0 > 0 {
            self.app.key_cache.mark_spend_dirty(&self.principal);
        }
    }
}
