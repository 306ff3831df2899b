//! Amounts of leases that return to their pools with the heartbeats.

use super::Leases;
use super::pool::{LeasedBalance, LeasedPool};
use super::state::LeaseState;
use penstock_storage::fleet::PoolAmount;

/// Amounts that return to the pools.
#[derive(Debug, Default)]
pub(super) struct PendingReturns {
    pub(super) amounts: Vec<(LeasedPool, i64)>,
    /// True if the amounts were sent. Then they do not change, and are sent again, until the store has accepted or
    /// refused them.
    pub(super) is_sent: bool,
}

impl Leases {
    /// Returns the amounts that return to their pools with the next heartbeat, and marks them as sent, so that they can
    /// no longer be cancelled. They stay pending until [`Leases::on_returns_accepted`].
    #[must_use]
    pub fn mark_returns_sent(&self) -> Vec<PoolAmount> {
        let mut returning = self.returning.lock();
        returning.is_sent = !returning.amounts.is_empty();
        let amounts = returning.amounts.iter();
        amounts.map(|(pool, amount)| PoolAmount { pool: pool.name(), amount: *amount }).collect()
    }

    /// Adds the amounts that the store refuses permanently back to the balances, so that they do not block the
    /// heartbeats.
    pub(super) fn cancel_refused_returns(&self, balance: impl Fn(&LeasedPool) -> LeasedBalance) {
        let refused = std::mem::take(&mut *self.returning.lock()).amounts;
        for (pool, amount) in refused {
            balance(&pool).add_amount(amount);
            if let Some(state) = self.pools.lock().get_mut(&pool) {
                state.drawn = state.drawn.saturating_add(amount);
            }
        }
    }

    /// Removes the amounts that the store has accepted.
    pub fn on_returns_accepted(&self) {
        *self.returning.lock() = PendingReturns::default();
    }

    /// Cancels the pending return of a lease and adds its amount back to the balance. Returns false if there is none,
    /// or if it was already sent.
    pub(super) fn cancel_pending_return(&self, balance: &LeasedBalance) -> bool {
        let pool = balance.pool();
        let mut pools = self.pools.lock();
        let mut returning = self.returning.lock();
        let index = returning.amounts.iter().position(|(returned, _)| *returned == pool);
        let Some(index) = index.filter(|_| !returning.is_sent) else { return false };
        let (_, amount) = returning.amounts.swap_remove(index);
        let state = pools.entry(pool).or_insert_with(|| LeaseState::from_amount(balance.total()));
        state.drawn = state.drawn.saturating_add(amount);
        state.is_fresh = true;
        balance.add_amount(amount);
        true
    }
}
