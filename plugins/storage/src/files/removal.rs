//! Removal of files. The commit that removes the rows of a file writes `d/<id>` with its former record, which remains
//! until the contents are deleted. So the contents are deleted later if the process ends before it has deleted them,
//! or if the bucket cannot be reached.

use super::{FileRecord, FileStore, WHAT, expiry_key, list_key};
use crate::{StoreError, StoreTable, Transaction, versioned_json};

const DELETED_PREFIX: &[u8] = b"d/";

/// Page of removed files whose contents may still exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletedPage {
    /// Records of the files before their removal.
    pub files: Vec<FileRecord>,
    /// Number of rows that cannot be decoded, such as rows of a newer version.
    pub unreadable: u64,
    /// Position of the next page; `None` for the last page.
    pub next: Option<Vec<u8>>,
}

impl FileStore {
    /// Returns the operations that remove a file; the caller applies them in its own transaction. Their guard fails
    /// if the file does not exist. They also write a row that lists the contents as not yet deleted;
    /// [`FileStore::record_contents_deleted`] removes this row.
    #[must_use]
    pub fn remove_operations(file: &FileRecord) -> Transaction {
        let key = Self::record_key(&file.id);
        let batch = Transaction::new()
            .require_present(StoreTable::Files, key.clone())
            .delete(StoreTable::Files, key)
            .delete(StoreTable::Files, list_key(&file.key, file.purpose, &file.id));
        let batch = match file.expires_at {
            Some(when) => batch.delete(StoreTable::Files, expiry_key(when, &file.id)),
            None => batch,
        };
        match versioned_json::encode(WHAT, file) {
            Ok(row) => batch.put(StoreTable::Files, deleted_key(&file.id), row),
            Err(_) => batch,
        }
    }

    /// Returns a page of the former records of removed files whose contents may still exist. `after` is the `next` of
    /// the page before.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`].
    pub fn deleted_page(&self, after: Option<&[u8]>, limit: usize) -> Result<DeletedPage, StoreError> {
        let page = self.store.scan(StoreTable::Files, DELETED_PREFIX, after, limit)?;
        let decoded = page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value).ok());
        let files: Vec<FileRecord> = decoded.flatten().collect();
        let unreadable = (page.rows.len() - files.len()) as u64;
        let last = page.rows.into_iter().next_back();
        Ok(DeletedPage { files, unreadable, next: last.filter(|_| page.more).map(|row| row.key) })
    }

    /// Records that the contents of a removed file have been deleted.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn record_contents_deleted(&self, id: &str) -> Result<(), StoreError> {
        self.store.apply(Transaction::new().delete(StoreTable::Files, deleted_key(id)))
    }

    /// Removes a file; returns false if it does not exist.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn delete(&self, file: &FileRecord) -> Result<bool, StoreError> {
        match self.store.apply(Self::remove_operations(file)) {
            Err(StoreError::Guard { .. }) => Ok(false),
            applied => applied.map(|()| true),
        }
    }
}

fn deleted_key(id: &str) -> Vec<u8> {
    [DELETED_PREFIX, id.as_bytes()].concat()
}
