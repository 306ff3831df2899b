//! Batches in a store: a record each, which of them each account has (the newest first), which are not over, and
//! which lines of those have their result. Contents are plain files elsewhere.
//!
//! ```text
//! batches  `b/` id                                       →  the record
//! batches  `a/` account `\0` (never − made, 8 bytes) id  →  nothing: the newest come first
//! batches  `i/a`                                         →  nothing: every batch has its `a/` row
//! batches  `o/` id                                       →  nothing: it is not over
//! lines    id                                            →  a bit for each line that has its result
//! ```
//!
//! Stores of earlier versions have `k/` rows, which listed the batches of a key. They are not read;
//! [`BatchStore::index`] adds the `a/` rows.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::ledger::RowWrite;
use crate::versioned;
use crate::{Batch, Space, Store, StoreError};

const WHAT: &str = "a batch";

/// Where a batch is.
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
    /// Whether nothing follows.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// How many lines are how far.
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

/// Tokens of all its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct BatchUsage {
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    pub reasoning: u64,
}

/// Why it failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchError {
    /// Stable.
    pub code: String,
    /// For people.
    pub message: String,
    /// The line of the input, from 1, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The field, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

/// A batch as it is kept. Times are Unix seconds unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchRecord {
    /// Its id.
    pub id: String,
    /// Public id of the key that made it, whose files its input and its results are.
    pub key: String,
    /// The account that owns it and pays.
    pub account: String,
    /// The path of every line.
    pub endpoint: String,
    /// The uploaded file.
    pub input: String,
    /// The file of its results, once there are any.
    #[serde(default)]
    pub output: Option<String>,
    /// Bytes of that file that count.
    #[serde(default)]
    pub output_bytes: u64,
    /// The window as its owner wrote it.
    pub window: String,
    /// When it was made, in milliseconds.
    pub created_ms: u64,
    /// When its window is over.
    pub expires: u64,
    /// Not begun before: it waits for a greener hour.
    #[serde(default)]
    pub scheduled: Option<u64>,
    /// Where it is.
    pub state: BatchState,
    /// How far its lines are.
    #[serde(default)]
    pub counts: BatchCounts,
    /// When its lines were begun.
    #[serde(default)]
    pub in_progress: Option<u64>,
    /// When it ended well.
    #[serde(default)]
    pub completed: Option<u64>,
    /// When it ended otherwise.
    #[serde(default)]
    pub failed: Option<u64>,
    /// When its owner ended it.
    #[serde(default)]
    pub cancelled: Option<u64>,
    /// Why it failed.
    #[serde(default)]
    pub errors: Vec<BatchError>,
    /// Pairs that its owner keeps with it.
    #[serde(default)]
    pub metadata: Vec<(String, String)>,
    /// The model of its first line.
    #[serde(default)]
    pub model: Option<String>,
    /// Tokens of all its answers.
    #[serde(default)]
    pub usage: BatchUsage,
}

/// Batches of an account, the newest first, a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<BatchRecord>,
    /// Whether more follow the last of them.
    pub more: bool,
}

/// The batches of a store.
#[derive(Clone, Debug)]
pub struct BatchStore {
    store: Arc<dyn Store>,
}

impl BatchStore {
    /// The batches in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> BatchStore {
        BatchStore { store }
    }

    /// Adds a batch, together with `with`.
    ///
    /// # Errors
    /// `Guard` if there is one of this id or a guard of `with` does not hold, and what [`Store::apply`] fails with.
    pub fn insert(&self, record: &BatchRecord, with: Batch) -> Result<(), StoreError> {
        let place = place(&record.id);
        let batch = Batch::new()
            .absent(Space::Batches, place.as_slice())
            .put(Space::Batches, place, versioned::write(WHAT, record)?)
            .put(Space::Batches, of_account(record), Vec::new())
            .put(Space::Batches, open(&record.id), Vec::new());
        self.store.apply(batch.and(with))
    }

    /// The batch of an id.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<BatchRecord>, StoreError> {
        self.store.get(Space::Batches, &place(id))?.map(|row| versioned::read(WHAT, &row)).transpose()
    }

    /// The batches of an account that were made before `after`, the newest first. Those made meanwhile or gone
    /// meanwhile do not move the others.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn list(
        &self,
        account: &str,
        after: Option<&BatchRecord>,
        limit: usize,
    ) -> Result<BatchPage, StoreError> {
        let prefix = [b"a/", account.as_bytes(), b"\0"].concat();
        let after = after.map(of_account);
        let page = self.store.scan(Space::Batches, &prefix, after.as_deref(), limit)?;
        let mut batches = Vec::with_capacity(page.rows.len());
        for row in &page.rows {
            let id = row.key.get(prefix.len() + 8..).and_then(|id| std::str::from_utf8(id).ok());
            let id = id.ok_or_else(|| StoreError::corrupt("the key of a batch's row"))?;
            batches.extend(self.get(id)?);
        }
        Ok(BatchPage { batches, more: page.more })
    }

    /// A page of all batches in the order of their ids, starting behind the id `after`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn all(&self, after: Option<&str>, limit: usize) -> Result<BatchPage, StoreError> {
        let after = after.map(place);
        let page = self.store.scan(Space::Batches, ALL, after.as_deref(), limit)?;
        let batches =
            page.rows.iter().map(|row| versioned::read(WHAT, &row.value)).collect::<Result<_, _>>()?;
        Ok(BatchPage { batches, more: page.more })
    }

    /// Adds the rows that list batches by account where an earlier version left them out; returns how many batches
    /// were looked at. Once they are complete, only those that are not over are looked at: a process of an earlier
    /// version that still drains may have made them.
    ///
    /// # Errors
    /// As [`Store::scan`] and [`Store::apply`].
    pub fn index(&self) -> Result<u64, StoreError> {
        let mut missing = Missing { store: &*self.store, batch: Batch::new(), count: 0, looked: 0 };
        if self.store.get(Space::Batches, INDEXED)?.is_some() {
            for record in self.open()? {
                missing.add(&record)?;
            }
            missing.write()?;
        } else {
            self.walk(|record| missing.add(record))?;
            missing.write()?;
            self.store.apply(Batch::new().put(Space::Batches, INDEXED, Vec::new()))?;
        }
        Ok(missing.looked)
    }

    /// The batches that are not over.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn open(&self) -> Result<Vec<BatchRecord>, StoreError> {
        let mut batches = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(Space::Batches, OPEN, after.as_deref(), crate::MAX_PAGE)?;
            for row in &page.rows {
                let id = row.key.get(OPEN.len()..).and_then(|id| std::str::from_utf8(id).ok());
                batches.extend(self.get(id.unwrap_or_default())?);
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(batches),
            }
        }
    }

    /// A bit for each line of a batch that has its result; `None` if none has.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn done(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(Space::Lines, id.as_bytes())
    }

    /// Every batch, in no order that means anything.
    ///
    /// # Errors
    /// The first of `each`, or as [`Store::scan`].
    pub fn walk<E: From<StoreError>>(
        &self,
        mut each: impl FnMut(&BatchRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(Space::Batches, ALL, after.as_deref(), crate::MAX_PAGE)?;
            for row in &page.rows {
                each(&versioned::read(WHAT, &row.value)?)?;
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(()),
            }
        }
    }
}

/// Rows by account that are about to be added.
struct Missing<'s> {
    store: &'s dyn Store,
    batch: Batch,
    count: usize,
    looked: u64,
}

impl Missing<'_> {
    /// Adds the row of a batch, if there is none.
    fn add(&mut self, record: &BatchRecord) -> Result<(), StoreError> {
        self.looked += 1;
        let row = of_account(record);
        if self.store.get(Space::Batches, &row)?.is_none() {
            self.batch = std::mem::take(&mut self.batch).put(Space::Batches, row, Vec::new());
            self.count += 1;
        }
        if self.count < GROUP { Ok(()) } else { self.write() }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        if std::mem::take(&mut self.count) == 0 { Ok(()) } else { self.store.apply(batch) }
    }
}

/// The rows of a batch as it is from now on, for a commit that holds more: `done` is kept as long as it is not over.
///
/// # Errors
/// A record that cannot be written, which none of this program is.
pub fn rows(record: &BatchRecord, done: Option<&[u8]>) -> Result<Vec<RowWrite>, StoreError> {
    let lines = record.id.as_bytes().to_vec();
    let row = |space, key, value| RowWrite { space, key, value };
    let mut rows = vec![row(Space::Batches, place(&record.id), Some(versioned::write(WHAT, record)?))];
    if record.state.is_end() {
        rows.push(row(Space::Batches, open(&record.id), None));
        rows.push(row(Space::Lines, lines, None));
    } else if let Some(done) = done {
        rows.push(row(Space::Lines, lines, Some(done.to_vec())));
    }
    Ok(rows)
}

const ALL: &[u8] = b"b/";
const OPEN: &[u8] = b"o/";
/// Says that every batch has its row by account.
const INDEXED: &[u8] = b"i/a";
/// Rows that are added at once.
const GROUP: usize = 256;

fn place(id: &str) -> Vec<u8> {
    [ALL, id.as_bytes()].concat()
}

fn open(id: &str) -> Vec<u8> {
    [OPEN, id.as_bytes()].concat()
}

fn of_account(record: &BatchRecord) -> Vec<u8> {
    let newest_first = (u64::MAX - record.created_ms).to_be_bytes();
    [b"a/", record.account.as_bytes(), b"\0", &newest_first, record.id.as_bytes()].concat()
}
