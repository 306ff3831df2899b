//! Trait of a storage engine. To add an engine, implement `Store`, add a row to `FOLDER_ENGINES` if the engine stores
//! its data in a folder, and pass the conformance suite.

use crate::{StoreError, StoreTable, Transaction};

/// Maximum number of rows of one page.
pub const MAX_PAGE_ROWS: usize = 1_000;
/// Limit on the bytes of one page: the page ends early once its rows have this many bytes.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Row that a read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Key of the row within its table.
    pub key: Vec<u8>,
    /// Value of the row, exactly as the caller wrote it.
    pub value: Vec<u8>,
}

/// Page of the rows of a table, in ascending key order; in descending order if [`Store::scan_back`] returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowPage {
    /// Rows of the page.
    pub rows: Vec<StoredRow>,
    /// True if more rows follow: repeat the call with the last key as `after`, or as `before` for [`Store::scan_back`].
    pub more: bool,
}

/// Arguments of a [`Store::scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowScan {
    /// Table to read.
    pub table: StoreTable,
    /// Prefix that the keys of the returned rows have.
    pub prefix: Vec<u8>,
    /// Last key of the previous page; `None` for the first page.
    pub after: Option<Vec<u8>>,
    /// Maximum number of rows.
    pub limit: usize,
}

impl RowScan {
    /// Creates the scan of the first page of the rows under a prefix.
    #[must_use]
    pub fn of_prefix(table: StoreTable, prefix: &[u8]) -> RowScan {
        RowScan { table, prefix: prefix.to_vec(), after: None, limit: MAX_PAGE_ROWS }
    }
}

/// Health of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreHealth {
    /// Store that reads and writes.
    Ready,
    /// The disk is full: the store reads but refuses writes until the disk has free space, and then resumes by
    /// itself.
    Full,
    /// The writer has spent this many milliseconds on one group of transactions, more than the limit in the options.
    /// The process should fail its readiness check and restart: recovery after a restart is safe, but waiting may
    /// take forever.
    Stuck {
        /// Time that the writer has spent on the current group of transactions, in milliseconds.
        milliseconds: u64,
    },
    /// The database has not answered for this many milliseconds. The store resumes by itself once the database
    /// answers. The data in memory remain usable until then, so a restart would not help.
    Unreachable {
        /// Milliseconds since the last answer.
        milliseconds: u64,
    },
    /// The database has lost commits that it had acknowledged. The store refuses all writes, and the process must be
    /// restarted.
    Reverted,
    /// The disk failed, or another process took over the database. After a failed sync no further write is
    /// acknowledged, and the process should restart; after other failures the store resumes by itself once the disk
    /// works again.
    Failed,
}

/// Result of [`Store::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOutcome {
    /// Number of rows whose checksum matches.
    pub rows: u64,
    /// Total size of the keys and values of the verified rows, in bytes.
    pub bytes: u64,
    /// Number of rows that are damaged or of an unknown table or version.
    pub damaged: u64,
    /// True if rows are missing or have an older value than the last one written, although none of the rows that were
    /// read is damaged.
    pub missing: bool,
    /// Sentence for each of the first hundred damaged rows, and one for missing rows, without row contents.
    pub findings: Vec<String>,
}

/// Row passed to the sink of [`Store::copy_rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotRow<'a> {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: &'a [u8],
    /// Value of the row; `None` if the row was deleted, perhaps after an earlier step copied it.
    pub value: Option<&'a [u8]>,
}

/// Durable map of typed tables. Every call blocks: async callers run it on blocking threads.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Returns the value of a row, if the row exists. A transaction may be visible shortly before its `apply` returns;
    /// a single row is never read half-written.
    ///
    /// # Errors
    /// Returns `Corrupt` if the row is damaged, `Format` if it is of an unknown version, `Io` if the disk fails, and
    /// `Unreachable` or `Database` for a database.
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns the values of several rows of a table, in the order of `keys`, like [`Store::get`] for each row. The
    /// rows may be read one after the other, not at one instant.
    ///
    /// # Errors
    /// Same as `get`.
    fn get_many(&self, space: StoreTable, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    /// Returns the rows whose key starts with `prefix` and is greater than `after`, in ascending key order: at most
    /// `limit`, at most [`MAX_PAGE_ROWS`], and fewer if they hold more than [`MAX_PAGE_BYTES`].
    ///
    /// # Errors
    /// Same as `get`.
    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError>;

    /// Returns the pages of several scans, in their order. An engine that needs a network round trip per call makes
    /// only one for all scans.
    ///
    /// # Errors
    /// Same as `get`.
    fn scan_many(&self, scans: &[RowScan]) -> Result<Vec<RowPage>, StoreError> {
        let page = |scan: &RowScan| self.scan(scan.table, &scan.prefix, scan.after.as_deref(), scan.limit);
        scans.iter().map(page).collect()
    }

    /// Returns the rows whose key starts with `prefix` and is less than `before`, in descending key order, with the
    /// limits of `scan`.
    ///
    /// # Errors
    /// Same as `get`.
    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError>;

    /// Applies a transaction completely or not at all. After `Ok` the transaction survives a power cut. Transactions of
    /// concurrent callers share one disk sync; a failed guard fails only its own transaction.
    ///
    /// # Errors
    /// Returns `Guard` for a failed guard, `TooLarge` for a transaction over the limits, and further errors, of which
    /// [`StoreError`] says whether the transaction may have been applied.
    fn apply(&self, batch: Transaction) -> Result<(), StoreError>;

    /// Passes every row to `sink` while the store continues to work. Applied in order, the rows give the state of the
    /// store at one instant before `copy_rows` returns.
    ///
    /// # Errors
    /// Returns the first error of `sink`, or the errors of `get`: a damaged row ends the copy.
    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Reads all rows and checks every checksum.
    ///
    /// # Errors
    /// Returns `Io` if the disk fails, `Unreachable` or `Database` for a database; damaged rows are findings, not
    /// errors.
    fn verify(&self) -> Result<VerifyOutcome, StoreError> {
        self.verify_with_progress(&mut |_| {})
    }

    /// Verifies like [`Store::verify`], and calls `on_rows_read` with the number of rows of each chunk.
    ///
    /// # Errors
    /// Same as [`Store::verify`].
    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError>;

    /// Returns the health of the store without blocking.
    fn health(&self) -> StoreHealth;
}

/// Returns the first key after all keys that start with `prefix`; `None` if there is no upper bound.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut past = prefix.get(..=last)?.to_vec();
    if let Some(byte) = past.last_mut() {
        *byte += 1;
    }
    Some(past)
}

/// Builder of a page within the row and byte limits.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    page: RowPage,
    limit: usize,
    bytes: usize,
}

impl PageBuilder {
    pub(crate) fn new(limit: usize) -> PageBuilder {
        PageBuilder { page: RowPage::default(), limit: limit.clamp(1, MAX_PAGE_ROWS), bytes: 0 }
    }

    /// Returns true if the page takes another row; otherwise marks the page as followed by more rows.
    pub(crate) fn has_capacity(&mut self) -> bool {
        let fits = self.page.rows.len() < self.limit && self.bytes < MAX_PAGE_BYTES;
        self.page.more = !fits;
        fits
    }

    /// Adds a row to the page.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += key.len() + value.len();
        self.page.rows.push(StoredRow { key: key.to_vec(), value: value.to_vec() });
    }

    /// Returns the finished page.
    pub(crate) fn finish(self) -> RowPage {
        self.page
    }
}
