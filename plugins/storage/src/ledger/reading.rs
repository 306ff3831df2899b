//! Reading of the ledger's blocks: by month, in order, page by page.

use super::key::{block_key, month_key, split_block_key};
use super::{EntryBlock, LedgerStore, decompress, parse_number};
use crate::{StoreError, StoreTable};

impl LedgerStore {
    /// Returns the bytes of a month's blocks, uncompressed.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn month_bytes(&self, month: &str) -> Result<u64, StoreError> {
        match self.store.get(StoreTable::Meta, &month_key(month))? {
            None => Ok(0),
            Some(row) => parse_number(&row),
        }
    }

    /// Returns the months that have blocks, in order.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn months(&self) -> Result<Vec<String>, StoreError> {
        let mut months = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Ledger, b"", after.as_deref(), 1)?;
            let Some(row) = page.rows.first() else { return Ok(months) };
            let (month, _) = split_block_key(&row.key)?;
            after = Some(block_key(&month, u64::MAX)?);
            months.push(month);
        }
    }

    /// Returns a page of the blocks of a month that end after the entry `after`, in order and decompressed lazily, and
    /// true if more blocks follow.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan); an item is `Corrupt` if its block cannot be read.
    pub fn month_blocks(
        &self,
        month: &str,
        after: u64,
    ) -> Result<(impl Iterator<Item = Result<EntryBlock, StoreError>> + use<>, bool), StoreError> {
        let last = block_key(month, after)?;
        let page =
            self.store.scan(StoreTable::Ledger, month.as_bytes(), Some(&last), crate::MAX_PAGE_ROWS)?;
        let sheet = |row: crate::StoredRow| {
            let (month, last) = split_block_key(&row.key)?;
            let unreadable = |_| {
                StoreError::corrupt(format!(
                    "the ledger block of {month} that ends with entry {last} cannot be read"
                ))
            };
            let text = decompress(row.value).map_err(unreadable)?;
            Ok(EntryBlock { month, last, text })
        };
        Ok((page.rows.into_iter().map(sheet), page.more))
    }

    /// Passes every block that ends after the entry `after` to `each`, in order.
    ///
    /// # Errors
    /// Returns the first error of `each`, or the errors of [`Store::scan`](crate::Store::scan).
    pub fn for_each_block<E: From<StoreError>>(
        &self,
        after: u64,
        mut each: impl FnMut(&EntryBlock) -> Result<(), E>,
    ) -> Result<(), E> {
        for month in self.months()? {
            self.for_each_block_in_month(&month, after, &mut each)?;
        }
        Ok(())
    }

    /// Iterates like [`LedgerStore::for_each_block`], within one month.
    ///
    /// # Errors
    /// Same as [`LedgerStore::for_each_block`].
    pub fn for_each_block_in_month<E: From<StoreError>>(
        &self,
        month: &str,
        mut after: u64,
        mut each: impl FnMut(&EntryBlock) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let (sheets, more) = self.month_blocks(month, after)?;
            let before = after;
            for sheet in sheets {
                let sheet = sheet?;
                each(&sheet)?;
                after = sheet.last;
            }
            if !more || after == before {
                return Ok(());
            }
        }
    }
}
