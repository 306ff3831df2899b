//! Fences of a commit: rows of other modules that must have a given state, and the proof that a commit was applied.

use super::{LedgerCommit, LedgerStore, RowWrite};
use crate::{StoreError, StoreTable};

/// Amount that a ledger commit adds to a counter row of the store, see [`crate::counter_row`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterDelta {
    /// Table of the counter.
    pub table: StoreTable,
    /// Key of the counter.
    pub key: Vec<u8>,
    /// Amount to add to the counter; may be negative.
    pub delta: i64,
}

impl LedgerCommit {
    /// Returns a row that the commit both requires by a fence and changes, with its new value. If the store has this
    /// value, the commit was applied. This is no proof if the new value is `None` (row removed).
    pub(super) fn fenced_row_write(&self) -> Option<&RowWrite> {
        let is_fence = |row: &&RowWrite| {
            self.fences
                .iter()
                .any(|fence| (fence.table, &fence.key) == (row.table, &row.key) && fence.value != row.value)
        };
        self.extra_rows.iter().rev().find(is_fence)
    }
}

impl LedgerStore {
    /// Returns true if an earlier attempt already applied the commit; `step` is the index of the guard that has
    /// failed.
    pub(super) fn is_applied(&self, group: &LedgerCommit, step: usize) -> Result<bool, StoreError> {
        if !group.blocks.is_empty() {
            // The first guard of a commit with blocks requires the previous tip of the chain.
            return Ok(step == 0 && self.tip()? == Some(group.new_tip));
        }
        let Some(changed) = group.fenced_row_write() else { return Ok(false) };
        let mut rows = vec![changed];
        if changed.value.is_none() {
            // A missing fence row does not prove that the commit was applied, because another process may have
            // removed the row. So the rows that the commit writes are compared too.
            rows.extend(group.extra_rows.iter().filter(|row| row.value.is_some()));
            if rows.len() == 1 {
                return Ok(false);
            }
        }
        for row in rows {
            if self.store.get(row.table, &row.key)? != row.value {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
