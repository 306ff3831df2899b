//! Return of leased amounts to their pools with the heartbeats.

use super::super::balance::AccountBalance;
use super::{Leases, pool_name, split_pool_name};
use penstock_ledger::Wallet;
use penstock_storage::fleet::PoolAmount;
use std::sync::Arc;

/// Amounts that return to the pools.
#[derive(Debug, Default)]
pub(super) struct PendingReturns {
    pub(super) amounts: Vec<PoolAmount>,
    /// True if they were sent: they stay the same, and are sent again, until the store has accepted or refused them.
    pub(super) is_sent: bool,
}

impl Leases {
    /// Returns the amounts that go back to the pools with the next beat. They stay until [`Leases::on_returned`].
    #[must_use]
    pub fn returning_amounts(&self) -> Vec<PoolAmount> {
        let mut returning = self.returning.lock();
        returning.is_sent = !returning.amounts.is_empty();
        returning.amounts.clone()
    }

    /// Adds the amounts that the store refuses permanently back to the balances, so that they do not block the
    /// heartbeats.
    pub(super) fn take_back_returns(&self, balance: impl Fn(&str) -> Arc<AccountBalance>) {
        let refused = std::mem::take(&mut *self.returning.lock()).amounts;
        for PoolAmount { pool, amount } in refused {
            let Some((wallet, account)) = split_pool_name(&pool) else { continue };
            balance(account).credit(wallet, amount);
            if let Some(state) = self.accounts.lock().get_mut(&(account.into(), wallet)) {
                state.drawn = state.drawn.saturating_add(amount);
            }
        }
    }

    /// Removes the amounts that the store has accepted.
    pub fn on_returned(&self) {
        *self.returning.lock() = PendingReturns::default();
    }

    /// Takes back what returns to a pool, unless it was sent already; returns false if there is nothing.
    pub(super) fn reclaim(&self, balance: &AccountBalance, wallet: Wallet) -> bool {
        let pool = pool_name(&balance.name, wallet);
        let mut accounts = self.accounts.lock();
        let mut returning = self.returning.lock();
        let index = returning.amounts.iter().position(|returned| returned.pool == pool);
        let Some(index) = index.filter(|_| !returning.is_sent) else { return false };
        let PoolAmount { amount, .. } = returning.amounts.swap_remove(index);
        let state = accounts.entry((balance.name.clone(), wallet)).or_default();
        state.drawn = state.drawn.saturating_add(amount);
        state.is_fresh = true;
        balance.credit(wallet, amount);
        true
    }
}
