//! Index of the unfinished batches: `o/` for a batch that one process runs, `p/` for one that runs in slices and for
//! its slices.

use super::slices::{self, BatchSlice};
use super::{BatchStore, OPEN_PREFIX};
use crate::{RowPage, RowScan, StoreError, StoreTable, StoredRow};
use std::collections::BTreeMap;

/// Entry of the index of unfinished batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnfinishedEntry {
    /// Unfinished batch with this id.
    Batch(String),
    /// Unfinished slice, and the id of its batch.
    Slice(String, BatchSlice),
}

impl UnfinishedEntry {
    /// Returns the id under which the entry is claimed and run.
    #[must_use]
    pub fn id(&self) -> String {
        match self {
            Self::Batch(id) => id.clone(),
            Self::Slice(batch, slice) => slice.id(batch),
        }
    }
}

impl BatchStore {
    /// Returns the ids of the unfinished batches, with those in slices at the end.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_ids(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.unfinished_ids_by_kind()?.concat())
    }

    /// Returns the ids of the unfinished batches that run as a whole, and of those in slices.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_ids_by_kind(&self) -> Result<[Vec<String>; 2], StoreError> {
        Ok([self.ids_of_prefix(OPEN_PREFIX)?, self.ids_of_prefix(slices::SLICED_PREFIX)?])
    }

    fn ids_of_prefix(&self, prefix: &[u8]) -> Result<Vec<String>, StoreError> {
        let mut ids = Vec::new();
        self.for_each_row(prefix, |row| {
            if let Some(UnfinishedEntry::Batch(id)) = parse_entry(row) {
                ids.push(id);
            }
            Ok(())
        })?;
        Ok(ids)
    }

    /// Returns the slices that have not ended, by batch and in their order.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_slices(&self) -> Result<BTreeMap<String, Vec<BatchSlice>>, StoreError> {
        let mut found: BTreeMap<String, Vec<BatchSlice>> = BTreeMap::new();
        self.for_each_row(slices::SLICED_PREFIX, |row| {
            if let Some(UnfinishedEntry::Slice(batch, slice)) = parse_entry(row) {
                found.entry(batch).or_default().push(slice);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the scans of the unfinished batches and slices, for [`crate::Store::scan_many`].
    #[must_use]
    pub fn unfinished_scans() -> [RowScan; 2] {
        [OPEN_PREFIX, slices::SLICED_PREFIX].map(|prefix| RowScan::of_prefix(StoreTable::Batches, prefix))
    }

    /// Returns the entries of a page of [`BatchStore::unfinished_scans`]. Slices that have ended and damaged rows are
    /// left out.
    pub fn parse_unfinished(page: &RowPage) -> impl Iterator<Item = UnfinishedEntry> {
        page.rows.iter().filter_map(parse_entry)
    }

    /// Calls `each` with all rows of a prefix.
    pub(super) fn for_each_row(
        &self,
        prefix: &[u8],
        mut each: impl FnMut(&StoredRow) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut after = None::<Vec<u8>>;
        loop {
            let (table, limit) = (StoreTable::Batches, crate::MAX_PAGE_ROWS);
            let page = self.store.scan(table, prefix, after.as_deref(), limit)?;
            page.rows.iter().try_for_each(&mut each)?;
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(()),
            }
        }
    }
}

/// Returns the entry of a row; `None` for a slice that has ended, and for a damaged row of a slice.
fn parse_entry(row: &StoredRow) -> Option<UnfinishedEntry> {
    let id = row.key.get(OPEN_PREFIX.len()..)?;
    let id = String::from_utf8_lossy(id).into_owned();
    if !slices::is_slice_id(&id) {
        return Some(UnfinishedEntry::Batch(id));
    }
    let slice = BatchSlice::from_row(&id, &row.value).ok().filter(|slice| slice.end.is_none())?;
    Some(UnfinishedEntry::Slice(slices::parent_batch_id(&id).to_owned(), slice))
}
