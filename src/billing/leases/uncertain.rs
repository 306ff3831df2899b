//! Draws with an unknown outcome: if a lease is larger in the store than in memory, the difference is added in
//! memory.

use super::super::Ledger;
use super::super::write_queue::WriteQueue;
use super::Leases;
use super::pool::{LeasedBalance, LeasedPool};
use penstock_storage::StoreError;
use std::collections::HashMap;
use tokio::sync::OwnedMutexGuard;

/// Proof that the store has all charges of a lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChargesWritten {
    /// The write queue is empty.
    Queue,
    /// All charges of this lease are written. It has no new charges as long as its total does not change.
    Lease,
}

/// Lease with a draw of unknown outcome. While this value exists, no request draws a further amount from the pool into
/// the lease. Requests may still spend the amount that the lease has.
struct UncertainLease {
    pool: LeasedPool,
    balance: LeasedBalance,
    /// Total of the leased balance in memory before the store is read.
    total: i64,
    written: ChargesWritten,
    _drawing: OwnedMutexGuard<()>,
}

impl UncertainLease {
    /// Returns the amount that the store should have of this lease if the draw got nothing; `None` if charges were made
    /// since the total was read.
    fn amount_in_memory(&self, queue: &WriteQueue) -> Option<i64> {
        match &self.balance {
            LeasedBalance::Budget(budget) => Some(budget.stored_amount()),
            LeasedBalance::Wallet(..) => {
                let is_written = self.written == ChargesWritten::Lease || queue.unwritten_bytes() == 0;
                (is_written && self.balance.total() == self.total).then_some(self.total)
            }
        }
    }
}

impl Ledger {
    /// Adds the amounts that draws with an unknown outcome got after all. Once all charges of a lease are written,
    /// this amount is the excess of the lease in the store over the lease in memory. Blocks.
    pub(super) fn resolve_uncertain_draws(
        &self,
        leases: &Leases,
        has_written_spends: bool,
    ) -> Result<(), StoreError> {
        let uncertain = self.uncertain_leases(leases, has_written_spends);
        if uncertain.is_empty() {
            return Ok(());
        }
        let parts = leases.member.leased_amounts()?.into_iter().map(|part| (part.pool, part.amount));
        let parts: HashMap<String, i64> = parts.collect();
        let mut pools = leases.pools.lock();
        for lease in uncertain {
            let Some(in_memory) = lease.amount_in_memory(&self.queue) else { continue };
            let part = parts.get(&lease.pool.name()).copied().unwrap_or_default();
            let missing = part.saturating_sub(in_memory).max(0);
            lease.balance.add_amount(missing);
            if let Some(state) = pools.get_mut(&lease.pool) {
                state.resolve_uncertain_draw(missing);
            }
        }
        Ok(())
    }

    /// Returns the leases with a draw of unknown outcome whose charges are all written.
    fn uncertain_leases(&self, leases: &Leases, has_written_spends: bool) -> Vec<UncertainLease> {
        if !leases.returning.lock().amounts.is_empty() {
            return Vec::new();
        }
        let (pushed, written) = (self.queue.last_pushed_number(), self.queue.last_written_number());
        let mut uncertain = Vec::new();
        for (pool, state) in leases.pools.lock().iter_mut().filter(|(_, state)| state.uncertain) {
            let balance = self.leased_balance(pool);
            let total = balance.total();
            let written = match &balance {
                // Charges since the last write of the spending do not change the lease of the budget in the store.
                LeasedBalance::Budget(_) => has_written_spends.then_some(ChargesWritten::Lease),
                LeasedBalance::Wallet(..) => match state.has_all_charges_written(total, pushed, written) {
                    true => Some(ChargesWritten::Lease),
                    false => (self.queue.unwritten_bytes() == 0).then_some(ChargesWritten::Queue),
                },
            };
            if let Some(written) = written
                && let Ok(_drawing) = state.drawing.clone().try_lock_owned()
            {
                uncertain.push(UncertainLease { pool: pool.clone(), balance, total, written, _drawing });
            }
        }
        uncertain
    }
}
