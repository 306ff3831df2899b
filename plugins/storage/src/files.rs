//! File metadata in a store, found by id and listed by key, newest or oldest first. The contents are plain files
//! outside the store.
//!
//! Each file has up to three rows, written together: `f/<id>` is the record, `k/<key>\0<purpose><id>` lists it under
//! its key, `e/<expiry time><id>` under its expiry time. Ids increase with the creation time, so a list in id order
//! is also in time order. A list can resume after the id of a file that has been deleted meanwhile.

mod lists;
mod removal;
mod usage;

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::{MAX_PAGE_ROWS, Store, StoreError, StoreTable, StoredRow, Transaction, versioned_json};

use lists::list_key;
pub use lists::{FilePage, FileQuery};
pub use removal::DeletedPage;
pub use usage::{FileInsertOutcome, UsedBytes};

const WHAT: &str = "a file";
const RECORD_PREFIX: &[u8] = b"f/";
const LIST_PREFIX: &[u8] = b"k/";
const EXPIRY_PREFIX: &[u8] = b"e/";
const USAGE_PREFIX: &[u8] = b"u/";
/// Maximum length of a file id, in bytes.
pub const MAX_FILE_ID_BYTES: usize = 64;

/// Purpose of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePurpose {
    /// Input file with the requests of a batch.
    Batch,
    /// Output file with the results of a batch.
    BatchOutput,
}

impl FilePurpose {
    /// All purposes of files.
    pub const ALL: [Self; 2] = [Self::Batch, Self::BatchOutput];

    /// Returns the name used in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::BatchOutput => "batch_output",
        }
    }

    const fn tag(self) -> u8 {
        match self {
            Self::Batch => b'b',
            Self::BatchOutput => b'o',
        }
    }
}

/// Processing status of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// File that still grows.
    Uploaded,
    /// File that is complete.
    Processed,
    /// File that is invalid.
    Error,
}

impl FileStatus {
    /// Returns the name used in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uploaded => "uploaded",
            Self::Processed => "processed",
            Self::Error => "error",
        }
    }
}

/// Record of a file. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Id of the file: letters, digits and `-_`, increasing with the creation time.
    pub id: String,
    /// Public id of the owning key.
    pub key: String,
    /// Account of that key.
    pub account: String,
    /// Name that the owner gave the file.
    pub filename: String,
    /// Purpose of the file.
    pub purpose: FilePurpose,
    /// Size of the contents in bytes; while the file grows, the bytes committed so far.
    pub bytes: u64,
    /// SHA-256 of the contents, 64 hex digits, once the file is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// CRC32C over the checksums of the blocks of the file; while the file grows, only of the blocks committed so
    /// far.
    #[serde(default, rename = "sums", skip_serializing_if = "Option::is_none")]
    pub table_checksum: Option<u32>,
    /// Creation time.
    pub created_at: u64,
    /// Time of the last append to a file that grew, Unix seconds; `None` for a file that was stored as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<u64>,
    /// Expiry time, if the owner set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Processing status.
    pub status: FileStatus,
    /// Reason of the status `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_details: Option<String>,
    /// Number of requests in the file.
    #[serde(default)]
    pub lines: u32,
    /// API path of the requests in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Page of the ids of expired files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredPage {
    /// Ids of the files.
    pub ids: Vec<String>,
    /// Position of the next page; `None` on the last page.
    pub next: Option<Vec<u8>>,
}

/// Key of the row with the id of the contents directory.
const DIRECTORY_KEY: &[u8] = b"files";

/// Files of a store.
#[derive(Clone, Debug)]
pub struct FileStore {
    store: Arc<dyn Store>,
}

impl FileStore {
    /// Creates a view of the files in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> FileStore {
        FileStore { store }
    }

    /// Returns the id of the contents directory, if it is stored.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn directory_id(&self) -> Result<Option<String>, StoreError> {
        let row = self.store.get(StoreTable::Meta, DIRECTORY_KEY)?;
        row.map(|row| {
            String::from_utf8(row).map_err(|_| StoreError::corrupt("the id of the files directory"))
        })
        .transpose()
    }

    /// Stores the id of the contents directory, unless one is stored already; returns the stored one.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn get_or_insert_directory_id(&self, id: &str) -> Result<String, StoreError> {
        let first = Transaction::new().require_absent(StoreTable::Meta, DIRECTORY_KEY);
        match self.store.apply(first.put(StoreTable::Meta, DIRECTORY_KEY, id.as_bytes())) {
            Ok(()) => Ok(id.to_owned()),
            Err(StoreError::Guard { .. }) => Ok(self.directory_id()?.unwrap_or_else(|| id.to_owned())),
            Err(error) => Err(error),
        }
    }

    /// Returns the operations that add a file; the caller applies them in its own transaction.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the id or the key is invalid.
    pub fn insert_operations(file: &FileRecord) -> Result<Transaction, StoreError> {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if file.id.is_empty() || file.id.len() > MAX_FILE_ID_BYTES || !file.id.bytes().all(may) {
            return Err(StoreError::InvalidArgument { what: "a file's id is letters, digits, - and _" });
        }
        if file.key.is_empty() || file.key.contains('\0') {
            return Err(StoreError::InvalidArgument { what: "a file needs a key" });
        }
        let (space, key, row) = Self::encoded_row(file)?;
        let mut batch = Transaction::new().require_absent(space, key.clone()).put(space, key, row);
        batch = batch.put(StoreTable::Files, list_key(&file.key, file.purpose, &file.id), []);
        if let Some(when) = file.expires_at {
            batch = batch.put(StoreTable::Files, expiry_key(when, &file.id), []);
        }
        Ok(batch)
    }

    /// Returns table, key and value of the record's row, for a transaction that changes it. The indexed fields (`id`,
    /// `key`, `purpose`, `expires_at`) must not change.
    ///
    /// # Errors
    /// Returns `Corrupt` if the record cannot be encoded, which does not happen for records of this program.
    pub fn encoded_row(file: &FileRecord) -> Result<(StoreTable, Vec<u8>, Vec<u8>), StoreError> {
        Ok((StoreTable::Files, Self::record_key(&file.id), versioned_json::encode(WHAT, file)?))
    }

    /// Returns the key of the record's row in [`StoreTable::Files`], for transactions that guard this row.
    #[must_use]
    pub fn record_key(id: &str) -> Vec<u8> {
        [RECORD_PREFIX, id.as_bytes()].concat()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// Returns `Guard` if a file of this id exists, and the errors of [`FileStore::insert_operations`] and
    /// [`Store::apply`].
    pub fn add(&self, file: &FileRecord) -> Result<(), StoreError> {
        self.store.apply(Self::insert_operations(file)?)
    }

    /// Returns the file of an id.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn get(&self, id: &str) -> Result<Option<FileRecord>, StoreError> {
        let row = self.store.get(StoreTable::Files, &Self::record_key(id))?;
        row.map(|row| versioned_json::decode(WHAT, &row)).transpose()
    }

    /// Returns the files of several ids, in their order.
    ///
    /// # Errors
    /// Same as [`Store::get_many`].
    pub fn get_many(&self, ids: &[String]) -> Result<Vec<Option<FileRecord>>, StoreError> {
        let rows = self.rows(ids)?;
        rows.into_iter().map(|row| row.map(|row| versioned_json::decode(WHAT, &row)).transpose()).collect()
    }

    /// Returns a list with a value for each of `ids`, in the same order: true if there is no file with this id.
    ///
    /// # Errors
    /// Same as [`Store::get_many`].
    pub fn are_missing(&self, ids: &[String]) -> Result<Vec<bool>, StoreError> {
        Ok(self.rows(ids)?.iter().map(Option::is_none).collect())
    }

    fn rows(&self, ids: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut rows = Vec::with_capacity(ids.len());
        for page in ids.chunks(MAX_PAGE_ROWS) {
            let keys: Vec<Vec<u8>> = page.iter().map(|id| Self::record_key(id)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            rows.extend(self.store.get_many(StoreTable::Files, &keys)?);
        }
        Ok(rows)
    }

    /// Returns a page of the ids of files that have expired at `now`, the earliest expiry first. `after` is the
    /// position `next` of the page before.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn expired_page(
        &self,
        now: u64,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<ExpiredPage, StoreError> {
        let page = self.store.scan(StoreTable::Files, EXPIRY_PREFIX, after, limit)?;
        let expiry = |row: &StoredRow| {
            let (when, id) = row.key.get(EXPIRY_PREFIX.len()..)?.split_first_chunk::<8>()?;
            Some((u64::from_be_bytes(*when), String::from_utf8_lossy(id).into_owned()))
        };
        let expired = page.rows.iter().filter_map(expiry).take_while(|(when, _)| *when <= now);
        let ids = expired.map(|(_, id)| id).collect();
        let last = page.rows.into_iter().next_back();
        let is_expired = |row: &StoredRow| expiry(row).is_none_or(|(when, _)| when <= now);
        let next = last.filter(|row| page.more && is_expired(row)).map(|row| row.key);
        Ok(ExpiredPage { ids, next })
    }
}

fn expiry_key(when: u64, id: &str) -> Vec<u8> {
    [EXPIRY_PREFIX, &when.to_be_bytes(), id.as_bytes()].concat()
}
