//! Lists of batches in pages.

use super::{BatchRecord, BatchStore, RECORD_PREFIX, WHAT, account_key, record_key};
use crate::filtered_page::{FilteredPage, MAX_FILTERED_ROWS, ScannedRows, filtered_page};
use crate::{StoreError, StoreTable, versioned_json};
use std::collections::HashMap;

/// Page of batches, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPage {
    /// Batches of the page.
    pub batches: Vec<BatchRecord>,
    /// Id of the batch after which the next page starts; `None` on the last page.
    pub next: Option<String>,
}

impl BatchStore {
    /// Returns the batches of an account that were created before `after` and pass `is_wanted`, the newest first.
    /// Batches created or removed meanwhile do not shift the page. At most 100,000 batches are read, so a page may have
    /// fewer batches than `limit`, or none, although more follow.
    ///
    /// # Errors
    /// Same as [`Store::scan`](crate::Store::scan).
    pub fn list(
        &self,
        account: &str,
        after: Option<&BatchRecord>,
        limit: usize,
        is_wanted: impl Fn(&BatchRecord) -> bool,
    ) -> Result<BatchPage, StoreError> {
        let prefix = [b"a/", account.as_bytes(), b"\0"].concat();
        let found = filtered_page(after.map(account_key), limit, MAX_FILTERED_ROWS, |after, count| {
            let page = self.store.scan(StoreTable::Batches, &prefix, after.map(Vec::as_slice), count)?;
            let ids = page.rows.iter().map(|row| {
                let id = row.key.get(prefix.len() + 8..).and_then(|id| std::str::from_utf8(id).ok());
                id.map(str::to_owned).ok_or_else(|| StoreError::corrupt("the index key of a batch"))
            });
            let ids: Vec<String> = ids.collect::<Result<_, _>>()?;
            let records = self.get_many(&ids)?.into_iter().filter(|record| is_wanted(record));
            let mut records: HashMap<String, BatchRecord> =
                records.map(|record| (record.id.clone(), record)).collect();
            let rows = page.rows.into_iter().zip(ids);
            let rows = rows.map(|(row, id)| (row.key, records.remove(&id))).collect();
            Ok(ScannedRows { rows, more: page.more })
        })?;
        Ok(batch_page(found, prefix.len() + 8))
    }

    /// Returns the batches of all accounts that pass `is_wanted` and whose ids are before `after`, in descending order
    /// of their ids: the newest first. Background responses are left out. At most 100,000 records are read, so a page may have fewer batches than
    /// `limit`, or none, although more follow.
    ///
    /// # Errors
    /// Same as [`Store::scan_back`](crate::Store::scan_back).
    pub fn list_all(
        &self,
        after: Option<&str>,
        limit: usize,
        is_wanted: impl Fn(&BatchRecord) -> bool,
    ) -> Result<BatchPage, StoreError> {
        let found = filtered_page(after.map(record_key), limit, MAX_FILTERED_ROWS, |after, count| {
            let after = after.map(Vec::as_slice);
            let page = self.store.scan_back(StoreTable::Batches, RECORD_PREFIX, after, count)?;
            let rows = page.rows.into_iter().map(|row| {
                let record: BatchRecord = versioned_json::decode(WHAT, &row.value)?;
                Ok((row.key, Some(record).filter(|record| record.background.is_none() && is_wanted(record))))
            });
            Ok(ScannedRows { rows: rows.collect::<Result<_, StoreError>>()?, more: page.more })
        })?;
        Ok(batch_page(found, RECORD_PREFIX.len()))
    }
}

/// Converts rows to a page. In the keys of these rows, the id of the batch starts at the byte `id_start`.
fn batch_page(found: FilteredPage<Vec<u8>, BatchRecord>, id_start: usize) -> BatchPage {
    let id = |key: Vec<u8>| String::from_utf8_lossy(key.get(id_start..).unwrap_or_default()).into_owned();
    BatchPage { batches: found.items, next: found.next.map(id) }
}
