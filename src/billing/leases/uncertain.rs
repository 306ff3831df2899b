//! Draws with an unknown outcome: what the store has of a lease beyond the memory is added to it.

use super::super::Ledger;
use super::Leases;
use super::pool::{LeasedBalance, LeasedPool};
use penstock_storage::StoreError;
use std::collections::HashMap;
use tokio::sync::OwnedMutexGuard;

/// Lease with a draw of unknown outcome, from which no request draws meanwhile.
struct UncertainLease {
    pool: LeasedPool,
    balance: LeasedBalance,
    /// Total of the leased balance in memory before the store is read.
    total: i64,
    _drawing: OwnedMutexGuard<()>,
}

impl Ledger {
    /// Adds amounts whose draw succeeded with an unknown outcome: the excess of a lease in the store over the memory, at
    /// a time when all charges of it are written. Blocks.
    pub(super) fn resolve_uncertain(
        &self,
        leases: &Leases,
        has_written_spends: bool,
    ) -> Result<(), StoreError> {
        let has_returned = || leases.returning.lock().amounts.is_empty();
        let is_written = |balance: &LeasedBalance| match balance {
            LeasedBalance::Wallet(..) => self.queue.unwritten_bytes() == 0 && has_returned(),
            // Charges since then do not change what the store has.
            LeasedBalance::Budget(_) => has_written_spends && has_returned(),
        };
        let mut uncertain = Vec::new();
        for (pool, state) in leases.pools.lock().iter().filter(|(_, state)| state.uncertain) {
            let balance = self.leased_balance(pool);
            if is_written(&balance)
                && let Ok(_drawing) = state.drawing.clone().try_lock_owned()
            {
                let (pool, total) = (pool.clone(), balance.total());
                uncertain.push(UncertainLease { pool, balance, total, _drawing });
            }
        }
        if uncertain.is_empty() {
            return Ok(());
        }
        let parts = leases.member.leased_amounts()?.into_iter().map(|part| (part.pool, part.amount));
        let parts: HashMap<String, i64> = parts.collect();
        let mut pools = leases.pools.lock();
        for lease in uncertain {
            let UncertainLease { pool, balance, total, _drawing } = lease;
            let in_memory = match &balance {
                LeasedBalance::Wallet(..) if !is_written(&balance) || balance.total() != total => continue,
                LeasedBalance::Wallet(..) => total,
                LeasedBalance::Budget(budget) => budget.stored(),
            };
            let part = parts.get(&pool.name()).copied().unwrap_or_default();
            let missing = part.saturating_sub(in_memory).max(0);
            balance.credit(missing);
            if let Some(state) = pools.get_mut(&pool) {
                state.drawn = state.drawn.saturating_add(missing);
                state.uncertain = false;
            }
        }
        Ok(())
    }
}
