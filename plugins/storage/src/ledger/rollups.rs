//! Rows of the usage rollups. This module does not parse them: keys and values are those of the crate
//! `penstock-usage`.

use crate::ledger::{LedgerStore, LedgerTip, TIP_KEY};
use crate::{MAX_OPERATIONS, RowPage, StoreError, StoreTable, Transaction};

impl LedgerStore {
    /// Returns the value of a rollup.
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

    /// Removes all rollups and marks them as incomplete. Returns the marked tip; `None` if the ledger is empty.
    ///
    /// # Errors
    /// Returns `Guard` if the ledger is written to meanwhile, and the errors of [`crate::Store::apply`].
    pub fn clear_rollups(&self) -> Result<Option<LedgerTip>, StoreError> {
        let tip = self.tip()?;
        let marked = tip.map(|tip| LedgerTip { rollups: false, ..tip });
        if let (Some(before), Some(after)) = (tip, marked) {
            self.replace_tip(before, after)?;
        }
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

    /// Marks the rollups as complete up to `tip`, which [`LedgerStore::clear_rollups`] returned.
    ///
    /// # Errors
    /// Returns `Guard` if the ledger has another tip, and the errors of [`crate::Store::apply`].
    pub fn complete_rollups(&self, tip: LedgerTip) -> Result<LedgerTip, StoreError> {
        let marked = LedgerTip { rollups: true, ..tip };
        self.replace_tip(tip, marked)?;
        Ok(marked)
    }

    fn replace_tip(&self, before: LedgerTip, after: LedgerTip) -> Result<(), StoreError> {
        if before == after {
            return Ok(());
        }
        let batch = Transaction::new().require_value(StoreTable::Meta, TIP_KEY, before.to_row()?);
        self.store.apply(batch.put(StoreTable::Meta, TIP_KEY, after.to_row()?))
    }
}
