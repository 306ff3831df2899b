//! The seam: what every engine promises. Another engine implements `Store`, gets an arm in `open` and
//! passes the conformance suite.

use crate::{Batch, Space, StoreError};

/// Most rows of one page.
pub const MAX_PAGE: usize = 1_000;
/// A page ends early once its rows hold this many bytes.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A row as the caller sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key within its space.
    pub key: Vec<u8>,
    /// Value as it was put.
    pub value: Vec<u8>,
}

/// Part of a space, by rising key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether rows follow: ask again with the last key as `after`.
    pub more: bool,
}

/// How a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Reads and writes.
    Ready,
    /// Reads; refuses writes until the disk has room again, then resumes by itself.
    Full,
    /// The writer has been at one group of batches for this many milliseconds, over the limit set in the
    /// options. The process should fail its readiness and restart: recovery is safe, waiting is not.
    Stuck {
        /// Milliseconds so far.
        milliseconds: u64,
    },
    /// The disk failed. After a failed sync nothing is acknowledged any more and the process should restart;
    /// after other failures the store goes on by itself once the disk does.
    Failed,
}

/// What `verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows whose checksum matches.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Rows that are damaged or of an unknown space or version.
    pub damaged: u64,
    /// Whether rows that were written are not there, or not as they were written last, though no row that is
    /// there is damaged.
    pub missing: bool,
    /// A sentence for each of the first hundred damaged rows, and one for missing ones, without contents.
    pub findings: Vec<String>,
}

/// A step of a copy, see [`Store::copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied<'a> {
    /// The row's space.
    pub space: Space,
    /// The row's key.
    pub key: &'a [u8],
    /// Its value; `None` if the row, perhaps copied before, is gone.
    pub value: Option<&'a [u8]>,
}

/// A durable map of typed spaces. Every call blocks: async callers put it on threads that may.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The row, if there is one. A batch may be seen a moment before its `apply` returns, never in part
    /// within one row.
    ///
    /// # Errors
    /// `Corrupt` if the row is damaged, `Io` if the disk fails.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The rows whose key starts with `prefix` and is greater than `after`, by rising key: at most `limit`
    /// of them, at most [`MAX_PAGE`], fewer if they hold more than [`MAX_PAGE_BYTES`].
    ///
    /// # Errors
    /// As `get`.
    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// The same from the greatest key down: the rows whose key starts with `prefix` and is less than `before`, by
    /// falling key.
    ///
    /// # Errors
    /// As `get`.
    fn scan_back(
        &self,
        space: Space,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// Does the whole batch, or nothing of it. When it returns `Ok` the batch survives a power cut. Batches
    /// of concurrent callers share one sync of the disk; a guard that does not hold fails its own batch only.
    ///
    /// # Errors
    /// `Guard`, `TooLarge`: nothing was written. `Full`, `Io`, `Stuck`: see there.
    fn apply(&self, batch: Batch) -> Result<(), StoreError>;

    /// Gives every row to `sink` while the store goes on working. Taken in order, the steps make up the
    /// store as it was at one instant before `copy` returns.
    ///
    /// # Errors
    /// The first error of `sink`, or as `get`: a damaged row ends the copy.
    fn copy(&self, sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// Reads everything and checks every checksum.
    ///
    /// # Errors
    /// `Io` if the disk fails; damaged rows are findings, not errors.
    fn verify(&self) -> Result<Verified, StoreError> {
        self.verify_with(&mut |_| {})
    }

    /// The same, with a call for each portion of rows that were read.
    ///
    /// # Errors
    /// As [`Store::verify`].
    fn verify_with(&self, read: &mut dyn FnMut(u64)) -> Result<Verified, StoreError>;

    /// How the store is, without waiting for anything.
    fn health(&self) -> Health;
}

/// The first key after all those that start with `prefix`; `None` if there is no end to them.
pub(crate) fn past(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut past = prefix.get(..=last)?.to_vec();
    if let Some(byte) = past.last_mut() {
        *byte += 1;
    }
    Some(past)
}

/// Collects rows into a page within the caps.
#[derive(Debug)]
pub(crate) struct PageBuilder {
    page: Page,
    limit: usize,
    bytes: usize,
}

impl PageBuilder {
    pub(crate) fn new(limit: usize) -> PageBuilder {
        PageBuilder { page: Page::default(), limit: limit.clamp(1, MAX_PAGE), bytes: 0 }
    }

    /// Whether another row fits; if not, the page is marked as followed by more.
    pub(crate) fn has_room(&mut self) -> bool {
        let room = self.page.rows.len() < self.limit && self.bytes < MAX_PAGE_BYTES;
        self.page.more = !room;
        room
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += key.len() + value.len();
        self.page.rows.push(Row { key: key.to_vec(), value: value.to_vec() });
    }

    pub(crate) fn finish(self) -> Page {
        self.page
    }
}
