//! Reading of the ledger's blocks: by chain and month, in order, page by page.

use penstock_core::entry_number::{chain_of, number_before_chain};

use super::key::{block_key, month_length_key, split_block_key};
use super::{EntryBlock, LedgerStore, decompress, parse_number};
use crate::{StoreError, StoreTable, StoredRow};

impl LedgerStore {
    /// Returns the total length in bytes of a month's blocks, uncompressed, in the chain that this process writes.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get).
    pub fn month_byte_len(&self, month: &str) -> Result<u64, StoreError> {
        if let Some(last) = self.last_length.lock().as_ref().filter(|last| last.month == month) {
            return Ok(last.bytes);
        }
        self.chain_month_byte_len(self.chain, month)
    }

    /// Returns the total length in bytes of a month's blocks in a chain, uncompressed; 0 without blocks.
    pub(super) fn chain_month_byte_len(&self, chain: u32, month: &str) -> Result<u64, StoreError> {
        match self.store.get(StoreTable::Meta, &month_length_key(chain, month))? {
            None => Ok(0),
            Some(row) => parse_number(&row),
        }
    }

    /// Returns the months in which any chain has blocks, in order.
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

    /// Returns the months in which a chain has blocks, in order.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn chain_months(&self, chain: u32) -> Result<Vec<String>, StoreError> {
        let mut months = Vec::new();
        for month in self.months()? {
            if self.first_row(&month, number_before_chain(chain))?.is_some() {
                months.push(month);
            }
        }
        Ok(months)
    }

    /// Returns the row of the first block that ends after the entry `after`, in the given month and in the chain of
    /// that entry.
    fn first_row(&self, month: &str, after: u64) -> Result<Option<StoredRow>, StoreError> {
        let after_key = block_key(month, after)?;
        let page = self.store.scan(StoreTable::Ledger, month.as_bytes(), Some(&after_key), 1)?;
        let Some(row) = page.rows.into_iter().next() else { return Ok(None) };
        let (_, last) = split_block_key(&row.key)?;
        Ok((chain_of(last) == chain_of(after)).then_some(row))
    }

    /// Returns the first block that ends after the entry `after`, in the given month and in the chain of that entry.
    ///
    /// # Errors
    /// Same as [`LedgerStore::month_blocks`].
    pub fn next_block(&self, month: &str, after: u64) -> Result<Option<EntryBlock>, StoreError> {
        self.first_row(month, after)?.map(parse_block).transpose()
    }

    /// Returns a page of the blocks of a month that end after the entry `after`, in the chain of that entry; true if
    /// more blocks follow. The blocks are in order and decompressed lazily. To read a chain from its beginning, pass
    /// [`number_before_chain`] as `after`.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan); an item is `Corrupt` if its block cannot be read.
    pub fn month_blocks(
        &self,
        month: &str,
        after: u64,
    ) -> Result<(impl Iterator<Item = Result<EntryBlock, StoreError>> + use<>, bool), StoreError> {
        self.month_blocks_limited(month, after, crate::MAX_PAGE_ROWS)
    }

    /// Returns a page like [`LedgerStore::month_blocks`], of at most `limit` blocks.
    ///
    /// # Errors
    /// Same as [`LedgerStore::month_blocks`].
    pub fn month_blocks_limited(
        &self,
        month: &str,
        after: u64,
        limit: usize,
    ) -> Result<(impl Iterator<Item = Result<EntryBlock, StoreError>> + use<>, bool), StoreError> {
        let last = block_key(month, after)?;
        let page = self.store.scan(StoreTable::Ledger, month.as_bytes(), Some(&last), limit)?;
        let (mut rows, mut more) = (page.rows, page.more);
        let mut own = 0;
        for row in &rows {
            // The blocks of the next chain follow the last block of this chain.
            if chain_of(split_block_key(&row.key)?.1) != chain_of(after) {
                more = false;
                break;
            }
            own += 1;
        }
        rows.truncate(own);
        Ok((rows.into_iter().map(parse_block), more))
    }

    /// Passes every block that ends after the entry `after` to `each`, in the chain of that entry and in order.
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
            let (blocks, more) = self.month_blocks(month, after)?;
            let before = after;
            for block in blocks {
                let block = block?;
                each(&block)?;
                after = block.last;
            }
            if !more || after == before {
                return Ok(());
            }
        }
    }
}

fn parse_block(row: StoredRow) -> Result<EntryBlock, StoreError> {
    let (month, last) = split_block_key(&row.key)?;
    let unreadable = |_| {
        StoreError::corrupt(format!("the ledger block of {month} that ends with entry {last} cannot be read"))
    };
    let text = decompress(row.value).map_err(unreadable)?;
    Ok(EntryBlock { month, last, text })
}
