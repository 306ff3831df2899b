//! Rows of the usage rollups. This module does not parse them; the crate `penstock-usage` defines their keys and
//! values.

use super::key::tip_key;
use super::{LedgerStore, LedgerTip};
use crate::{MAX_OPERATIONS, RowPage, StoreError, StoreTable, Transaction};

impl LedgerStore {
    /// Returns the value of the usage rollup with this key; `None` if there is none.
    ///
    /// # Errors
    /// Same as [`crate::Store::get`].
    pub fn rollup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(StoreTable::Usage, key)
    }

    /// Returns a page of at most `limit` rollups whose keys start with `prefix`, after the key `after`.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn rollup_page(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.store.scan(StoreTable::Usage, prefix, after, limit)
    }

    /// Removes all rollups and marks them as incomplete. Returns the new tips of all chains, which contain this mark.
    /// No other process may write to the ledger during the call.
    ///
    /// # Errors
    /// Returns `Guard` if the ledger is written to meanwhile, and the errors of [`crate::Store::apply`].
    pub fn clear_rollups(&self) -> Result<Vec<(u32, LedgerTip)>, StoreError> {
        let marked = self.mark_rollups(&self.chains()?, false)?;
        loop {
            let page = self.store.scan(StoreTable::Usage, b"", None, MAX_OPERATIONS / 2)?;
            let mut batch = Transaction::new();
            for row in &page.rows {
                batch = batch.delete(StoreTable::Usage, row.key.as_slice());
            }
            if batch.is_empty() {
                return Ok(marked);
            }
            self.store.apply(batch)?;
        }
    }

    /// Writes rollups outside of a commit, while they are rebuilt.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn write_rollups(&self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreError> {
        for some in rows.chunks(MAX_OPERATIONS / 4) {
            let mut batch = Transaction::new();
            for (key, value) in some {
                batch = batch.put(StoreTable::Usage, key.as_slice(), value.as_slice());
            }
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Writes rollups if the row with the key `guard` has the value `value`; `None` requires that there is no such row.
    /// A large number of rollups is written in several transactions, each with this guard.
    ///
    /// # Errors
    /// Returns `Guard` if the row `guard` has another value, and the errors of [`crate::Store::apply`].
    pub fn write_guarded_rollups(
        &self,
        (guard, value): (&[u8], Option<&[u8]>),
        rows: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), StoreError> {
        for some in rows.chunks(MAX_OPERATIONS / 4) {
            let mut batch = match value {
                Some(value) => Transaction::new().require_value(StoreTable::Usage, guard, value),
                None => Transaction::new().require_absent(StoreTable::Usage, guard),
            };
            for (key, value) in some {
                batch = batch.put(StoreTable::Usage, key.as_slice(), value.as_slice());
            }
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Marks the rollups as complete up to the tips that [`LedgerStore::clear_rollups`] returned. Returns the tips with
    /// the mark.
    ///
    /// # Errors
    /// Returns `Guard` if a chain has another tip, and the errors of [`crate::Store::apply`].
    pub fn mark_rollups_complete(
        &self,
        tips: &[(u32, LedgerTip)],
    ) -> Result<Vec<(u32, LedgerTip)>, StoreError> {
        self.mark_rollups(tips, true)
    }

    /// Sets the mark of complete rollups in the tips of all chains, in one transaction.
    fn mark_rollups(
        &self,
        tips: &[(u32, LedgerTip)],
        are_complete: bool,
    ) -> Result<Vec<(u32, LedgerTip)>, StoreError> {
        let mut batch = Transaction::new();
        let mut marked = Vec::with_capacity(tips.len());
        for (chain, tip) in tips {
            let (key, after) = (tip_key(*chain), LedgerTip { are_rollups_complete: are_complete, ..*tip });
            marked.push((*chain, after));
            if *tip != after {
                batch = batch.require_value(StoreTable::Meta, key.as_slice(), tip.to_row()?).put(
                    StoreTable::Meta,
                    key,
                    after.to_row()?,
                );
            }
        }
        if !batch.is_empty() {
            self.store.apply(batch)?;
        }
        Ok(marked)
    }
}
