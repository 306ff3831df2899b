//! Changes of the pools of a fleet, by account and wallet: charges reduce the lease that this member has of a pool, and
//! grants and corrections are added to the pool.

use super::entry_effects::balance_change;
use penstock_ledger::EntryKind;
use penstock_storage::fleet::{PoolAmount, credit_pool_name, energy_pool_name};
use std::collections::BTreeMap;

/// Changes of the pools by the entries of a group, by pool name.
#[derive(Default)]
pub(super) struct PoolChanges(BTreeMap<String, PoolChange>);

#[derive(Default)]
struct PoolChange {
    /// Amount taken from the lease of this process.
    spent: i64,
    /// Amount that grants and corrections add to the pool; negative for a reduction.
    credited: i64,
}

impl PoolChanges {
    /// Adds the amount of an entry to the changes of its pool: a charge as spent, a grant or a correction as
    /// credited.
    pub(super) fn add_entry(&mut self, account: &str, kind: &EntryKind) {
        let Some(Some(change)) = balance_change(kind) else { return };
        let pools = [(credit_pool_name(account), change.credits), (energy_pool_name(account), change.energy)];
        for (pool, amount) in pools.into_iter().filter(|(_, amount)| *amount != 0) {
            let pool = self.0.entry(pool).or_default();
            if matches!(kind, EntryKind::Settle { .. }) {
                pool.spent = pool.spent.saturating_sub(amount);
            } else {
                pool.credited = pool.credited.saturating_add(amount);
            }
        }
    }

    /// Returns the maximum number of operations of the store that the changes need.
    pub(super) fn max_operations(&self) -> usize {
        2 * self.0.len()
    }

    /// Returns the spent and the credited amounts.
    pub(super) fn into_spent_and_credited(self) -> (Vec<PoolAmount>, Vec<PoolAmount>) {
        let (mut spent, mut credited) = (Vec::new(), Vec::new());
        for (pool, change) in self.0 {
            if change.spent != 0 {
                spent.push(PoolAmount { pool: pool.clone(), amount: change.spent });
            }
            if change.credited != 0 {
                credited.push(PoolAmount { pool, amount: change.credited });
            }
        }
        (spent, credited)
    }
}
