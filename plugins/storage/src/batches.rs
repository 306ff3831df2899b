//! Batches in a store: their records, an index by account (newest first), an index of unfinished batches, and a
//! bitmap of the finished lines of each unfinished batch. The contents of files are outside the store, as plain
//! files.
//!
//! ```text
//! batches  `b/` id                                          →  the record
//! batches  `a/` account `\0` (!created_ms, 8 bytes BE) id   →  empty; the newest first; none for background responses
//! batches  `i/a`                                            →  empty; present once every batch has its `a/` row
//! batches  `o/` id                                          →  empty; the batch is unfinished
//! batches  `c/`, `x/` id, `n/` account                      →  coordination of a fleet, see `batches/claims.rs`
//! batches  `p/`, `g/` id                                    →  batches in slices, see `batches/slices.rs`
//! lines    id                                               →  a bit for each line that has its result
//! ```
//!
//! Stores of earlier versions have `k/` rows, which list the batches of a key. These rows are not read;
//! [`BatchStore::build_account_index`] adds the `a/` rows instead.

mod claims;
mod lists;
mod slices;
mod unfinished;
mod usage;

use claims::coordination_row_removals;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::ledger::RowWrite;
use crate::versioned_json;
use crate::{Store, StoreError, StoreTable, Transaction};

pub use claims::{
    BatchClaim, BatchCoordination, BatchInsertOutcome, ClaimState, EndRequest, claim_for_insert,
};
pub use lists::BatchPage;
pub use slices::{
    BatchSlice, MAX_SLICES, PendingSliceMerge, ResultSegment, SliceEndReason, is_slice_id, parent_batch_id,
    slicing_rows,
};
pub use unfinished::{UnfinishedEntry, UnfinishedSlices};
pub use usage::BatchUsage;

const WHAT: &str = "a batch";

/// State of a stored batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum BatchState {
    #[default]
    Validating,
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

impl BatchState {
    /// Returns true if the state is final.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Number of requests (lines of the input file), in total and by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct BatchCounts {
    pub total: u32,
    pub completed: u32,
    pub failed: u32,
    pub cancelled: u32,
    pub expired: u32,
}

/// Error of a failed batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchError {
    /// Stable error code.
    pub code: String,
    /// Error message for users.
    pub message: String,
    /// Line number in the input file, from 1, if the error has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Field name, if the error has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

/// Run of a background response. The store treats it as a batch of one request without files; its request and its
/// answer are stored with the responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundRun {
    /// Number of times that the run was started. Starts that a graceful shutdown of the gateway interrupted do not
    /// count.
    pub starts: u32,
}

/// Record of a batch. Times are Unix seconds unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Id of the batch.
    pub id: String,
    /// Public id of the key that created the batch and owns its input and output files.
    pub key: String,
    /// Account that owns the batch and pays for it.
    pub account: String,
    /// Request path of every line.
    pub endpoint: String,
    /// Id of the uploaded input file.
    pub input: String,
    /// Id of the output file, once there are results.
    #[serde(default)]
    pub output: Option<String>,
    /// Committed bytes of the output file.
    #[serde(default)]
    pub output_bytes: u64,
    /// Completion window as the client wrote it.
    pub window: String,
    /// Creation time, in Unix milliseconds.
    pub created_ms: u64,
    /// End of the completion window.
    pub expires: u64,
    /// Earliest start of a batch that waits for hours of low grid emissions, Unix seconds; `None` for any other batch.
    #[serde(default)]
    pub scheduled: Option<u64>,
    /// State of the batch.
    pub state: BatchState,
    /// Number of requests (lines of the input file), in total and by outcome.
    #[serde(default)]
    pub counts: BatchCounts,
    /// Time from which the first line of the batch could start, Unix seconds; `None` before.
    #[serde(default)]
    pub in_progress: Option<u64>,
    /// Completion time.
    #[serde(default)]
    pub completed: Option<u64>,
    /// Failure time.
    #[serde(default)]
    pub failed: Option<u64>,
    /// Cancellation time.
    #[serde(default)]
    pub cancelled: Option<u64>,
    /// Errors of a failed batch.
    #[serde(default)]
    pub errors: Vec<BatchError>,
    /// Key-value pairs that the owner attached to the batch.
    #[serde(default)]
    pub metadata: Vec<(String, String)>,
    /// Model of the first line.
    #[serde(default)]
    pub model: Option<String>,
    /// Token usage of all responses.
    #[serde(default)]
    pub usage: BatchUsage,
    /// Background response that the record runs; `None` for a batch with an input file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundRun>,
    /// Number of slices in which several gateways run the batch; `None` for a batch that one gateway runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<u32>,
    /// Slice that this record represents in memory: a slice runs with a copy of the record of its batch. `None` for a
    /// batch. Not stored.
    #[serde(skip)]
    pub slice: Option<BatchSlice>,
}

/// Batches of a store.
#[derive(Clone, Debug)]
pub struct BatchStore {
    store: Arc<dyn Store>,
}

impl BatchStore {
    /// Creates a view of the batches in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> BatchStore {
        BatchStore { store }
    }

    /// Adds a batch in one transaction with the operations of `with`.
    ///
    /// # Errors
    /// Returns `Guard` if a batch of this id exists or a guard of `with` fails, and the errors of [`Store::apply`].
    pub fn insert(&self, record: &BatchRecord, with: Transaction) -> Result<(), StoreError> {
        self.store.apply(self.insert_operations(record)?.append_operations(with))
    }

    /// Returns the batch of an id.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<BatchRecord>, StoreError> {
        self.store
            .get(StoreTable::Batches, &record_key(id))?
            .map(|row| versioned_json::decode(WHAT, &row))
            .transpose()
    }

    /// Adds the missing account index rows of batches from earlier versions; returns the number of batches checked.
    /// Once the index is complete, only unfinished batches are checked, because a draining process of an earlier
    /// version may still have created some.
    ///
    /// # Errors
    /// Same as [`Store::scan`] and [`Store::apply`].
    pub fn build_account_index(&self) -> Result<u64, StoreError> {
        let mut missing =
            IndexBackfill { store: &*self.store, batch: Transaction::new(), count: 0, checked: 0 };
        if self.store.get(StoreTable::Batches, INDEX_COMPLETE_KEY)?.is_some() {
            for record in self.list_unfinished()? {
                missing.add(&record)?;
            }
            missing.flush()?;
        } else {
            self.for_each(|record| missing.add(record))?;
            missing.flush()?;
            self.store.apply(Transaction::new().put(StoreTable::Batches, INDEX_COMPLETE_KEY, Vec::new()))?;
        }
        Ok(missing.checked)
    }

    /// Returns the unfinished batches.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list_unfinished(&self) -> Result<Vec<BatchRecord>, StoreError> {
        self.get_many(&self.unfinished_ids()?)
    }

    /// Returns the bitmap of the lines of a batch that have their result; `None` if no line has a result or the batch
    /// has ended.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn finished_line_bitmap(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(StoreTable::Lines, id.as_bytes())
    }

    /// Passes every batch to `each` in the order of the ids, background responses included.
    ///
    /// # Errors
    /// Returns the first error of `each`, or the errors of [`Store::scan`].
    pub fn for_each<E: From<StoreError>>(
        &self,
        mut each: impl FnMut(&BatchRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(
                StoreTable::Batches,
                RECORD_PREFIX,
                after.as_deref(),
                crate::MAX_PAGE_ROWS,
            )?;
            for row in &page.rows {
                each(&versioned_json::decode(WHAT, &row.value)?)?;
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(()),
            }
        }
    }
}

/// Missing rows of the index by account, collected to be written together.
struct IndexBackfill<'s> {
    store: &'s dyn Store,
    batch: Transaction,
    count: usize,
    checked: u64,
}

impl IndexBackfill<'_> {
    /// Adds the account index row of a batch, if it is missing.
    fn add(&mut self, record: &BatchRecord) -> Result<(), StoreError> {
        self.checked += 1;
        if record.background.is_some() {
            return Ok(());
        }
        let row = account_key(record);
        if self.store.get(StoreTable::Batches, &row)?.is_none() {
            self.batch = std::mem::take(&mut self.batch).put(StoreTable::Batches, row, Vec::new());
            self.count += 1;
        }
        if self.count < BACKFILL_ROWS { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        if std::mem::take(&mut self.count) == 0 { Ok(()) } else { self.store.apply(batch) }
    }
}

/// Returns the changed rows of a batch, to write as part of a larger commit. The bitmap `done` is written while the
/// batch is unfinished. When the batch ends, the bitmap is removed, together with the row in the index of unfinished
/// batches and the rows by which a fleet coordinates the batch; for a background response, the record is removed too.
/// For a slice, returns the rows of the slice, whose record is not stored.
///
/// # Errors
/// Returns `Corrupt` if the record cannot be encoded, which does not happen for records of this program.
pub fn batch_row_writes(record: &BatchRecord, done: Option<&[u8]>) -> Result<Vec<RowWrite>, StoreError> {
    if let Some(slice) = &record.slice {
        return Ok(slices::slice_progress_rows(record, slice, done));
    }
    let lines = record.id.as_bytes().to_vec();
    let row = |space, key, value| RowWrite { table: space, key, value };
    let is_over = record.state.is_final() && record.background.is_some();
    let own = if is_over { None } else { Some(versioned_json::encode(WHAT, record)?) };
    let mut rows = vec![row(StoreTable::Batches, record_key(&record.id), own)];
    if record.state.is_final() {
        rows.push(row(StoreTable::Batches, open_key(&record.id), None));
        rows.push(row(StoreTable::Lines, lines, None));
        rows.extend(coordination_row_removals(&record.id));
        if let Some(count) = record.slices {
            rows.extend(slices::slice_row_removals(&record.id, count));
        }
    } else if let Some(done) = done {
        rows.push(row(StoreTable::Lines, lines, Some(done.to_vec())));
    }
    Ok(rows)
}

const RECORD_PREFIX: &[u8] = b"b/";
const OPEN_PREFIX: &[u8] = b"o/";
/// Key of the row that marks the account index as complete.
const INDEX_COMPLETE_KEY: &[u8] = b"i/a";
/// Number of index rows added per transaction.
const BACKFILL_ROWS: usize = 256;

fn record_key(id: &str) -> Vec<u8> {
    [RECORD_PREFIX, id.as_bytes()].concat()
}

fn open_key(id: &str) -> Vec<u8> {
    [OPEN_PREFIX, id.as_bytes()].concat()
}

fn account_key(record: &BatchRecord) -> Vec<u8> {
    let newest_first = (u64::MAX - record.created_ms).to_be_bytes();
    [b"a/", record.account.as_bytes(), b"\0", &newest_first, record.id.as_bytes()].concat()
}
