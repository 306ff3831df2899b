//! Chains of a ledger: their tips, and the removal of all of them.

use super::key::{NAME_PREFIX, TIP_PREFIX, chain_of_tip, tip_key};
use super::{LedgerStore, LedgerTip};
use crate::{MAX_OPERATIONS, MAX_PAGE_ROWS, Store, StoreError, StoreTable, Transaction};

impl LedgerStore {
    /// Returns the tip of the chain that this process writes; `None` before its first entry.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn tip(&self) -> Result<Option<LedgerTip>, StoreError> {
        self.chain_tip(self.chain)
    }

    /// Returns the tip of a chain; `None` before its first entry.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn chain_tip(&self, chain: u32) -> Result<Option<LedgerTip>, StoreError> {
        self.store.get(StoreTable::Meta, &tip_key(chain))?.map(|row| LedgerTip::from_row(&row)).transpose()
    }

    /// Returns the chains that have entries, ascending, with their tips. The tips are read one after the other, not at
    /// one instant.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn chains(&self) -> Result<Vec<(u32, LedgerTip)>, StoreError> {
        let mut chains: Vec<(u32, LedgerTip)> = self.chain_tip(0)?.map(|tip| (0, tip)).into_iter().collect();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Meta, TIP_PREFIX, after.as_deref(), MAX_PAGE_ROWS)?;
            for row in &page.rows {
                chains.push((chain_of_tip(&row.key)?, LedgerTip::from_row(&row.value)?));
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => break,
            }
        }
        chains.sort_unstable_by_key(|(chain, _)| *chain);
        Ok(chains)
    }

    /// Returns true if the usage rollups contain every entry of all chains.
    ///
    /// # Errors
    /// Same as [`LedgerStore::chains`].
    pub fn has_complete_rollups(&self) -> Result<bool, StoreError> {
        Ok(self.chains()?.iter().all(|(_, tip)| tip.are_rollups_complete))
    }

    /// Removes the ledger from the store, so that it can be rebuilt from its replica, which is not changed. A crash
    /// during the removal leaves a ledger that cannot be opened; then the removal must be repeated.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn clear(store: &dyn Store) -> Result<(), StoreError> {
        let mut batch = Transaction::new().delete(StoreTable::Meta, tip_key(0));
        for (space, prefix) in [
            (StoreTable::Meta, TIP_PREFIX),
            (StoreTable::Ledger, b""),
            (StoreTable::Usage, b""),
            (StoreTable::Balances, b""),
            (StoreTable::Meta, b"ledger/"),
            (StoreTable::Idempotency, NAME_PREFIX),
        ] {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = store.scan(space, prefix, after.as_deref(), MAX_OPERATIONS / 2)?;
                for row in &page.rows {
                    batch = batch.delete(space, row.key.as_slice());
                }
                store.apply(std::mem::take(&mut batch))?;
                match page.rows.into_iter().next_back() {
                    Some(row) if page.more => after = Some(row.key),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}
