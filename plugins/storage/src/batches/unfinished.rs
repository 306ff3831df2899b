//! Index of the unfinished batches: `o/` rows for batches that one process runs, `p/` rows for batches that run in
//! slices and for their slices.

use super::slices::{self, BatchSlice};
use super::{BatchStore, OPEN_PREFIX};
use crate::{RowPage, RowScan, StoreError, StoreTable, StoredRow};
use std::collections::BTreeMap;

/// Entry of the index of unfinished batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnfinishedEntry {
    /// Unfinished batch with this id.
    Batch(String),
    /// Id of a batch that runs in slices, and one of its unfinished slices.
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

/// Slices that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedSlices {
    /// Slices of each batch by its id, in the order of their numbers.
    pub by_batch: BTreeMap<String, Vec<BatchSlice>>,
    /// Ids of slices whose rows are damaged: nobody can run them, and their batches do not end.
    pub damaged: Vec<String>,
}

impl BatchStore {
    /// Returns the ids of the unfinished batches, with those in slices at the end.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_ids(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.unfinished_whole_and_sliced_ids()?.concat())
    }

    /// Returns the ids of the unfinished batches that run as a whole, and of those in slices.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_whole_and_sliced_ids(&self) -> Result<[Vec<String>; 2], StoreError> {
        Ok([self.ids_of_prefix(OPEN_PREFIX)?, self.ids_of_prefix(slices::SLICE_ROW_PREFIX)?])
    }

    fn ids_of_prefix(&self, prefix: &[u8]) -> Result<Vec<String>, StoreError> {
        let mut ids = Vec::new();
        self.for_each_row(prefix, |row| {
            if let Ok(Some(UnfinishedEntry::Batch(id))) = parse_entry(row) {
                ids.push(id);
            }
            Ok(())
        })?;
        Ok(ids)
    }

    /// Returns the slices that have not ended.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn unfinished_slices(&self) -> Result<UnfinishedSlices, StoreError> {
        let mut found = UnfinishedSlices::default();
        self.for_each_row(slices::SLICE_ROW_PREFIX, |row| {
            match parse_entry(row) {
                Ok(Some(UnfinishedEntry::Slice(batch, slice))) => {
                    found.by_batch.entry(batch).or_default().push(slice);
                }
                Ok(_) => {}
                Err(DamagedSlice(id)) => found.damaged.push(id),
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the scans of the unfinished batches and slices, for [`crate::Store::scan_many`].
    #[must_use]
    pub fn unfinished_scans() -> [RowScan; 2] {
        [OPEN_PREFIX, slices::SLICE_ROW_PREFIX].map(|prefix| RowScan::of_prefix(StoreTable::Batches, prefix))
    }

    /// Returns the entries of a page of [`BatchStore::unfinished_scans`]. Slices that have ended and damaged rows are
    /// left out.
    pub fn parse_unfinished_page(page: &RowPage) -> impl Iterator<Item = UnfinishedEntry> {
        page.rows.iter().filter_map(|row| parse_entry(row).ok().flatten())
    }

    /// Calls `each` with every row of the table `Batches` whose key has the prefix; stops at the first error of `each`.
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

/// Id of a slice whose row is damaged.
struct DamagedSlice(String);

/// Returns the entry of a row; `None` for a slice that has ended.
fn parse_entry(row: &StoredRow) -> Result<Option<UnfinishedEntry>, DamagedSlice> {
    let id = String::from_utf8_lossy(row.key.get(OPEN_PREFIX.len()..).unwrap_or_default()).into_owned();
    if !slices::is_slice_id(&id) {
        return Ok(Some(UnfinishedEntry::Batch(id)));
    }
    match BatchSlice::from_row(&id, &row.value) {
        Ok(slice) if slice.end.is_some() => Ok(None),
        Ok(slice) => Ok(Some(UnfinishedEntry::Slice(slices::parent_batch_id(&id).to_owned(), slice))),
        Err(_) => Err(DamagedSlice(id)),
    }
}
