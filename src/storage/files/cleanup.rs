//! Deletion of files that a crash left over, and of expired files.

use super::{FILE_ID_PREFIX, FileError, FileExpiryContext, FileManager, FileOwner};
use crate::storage::object_id;
use penstock_storage::StoreError;
use penstock_storage::files::FileRecord;
use std::fs;

/// Maximum number of file records that are read at once.
const PAGE_SIZE: usize = 500;

/// Outcome of a pass over the files whose deletion was interrupted.
#[derive(Debug, Default)]
pub struct DeletionOutcome {
    /// Number of files whose contents were removed.
    pub finished: u64,
    /// Number of files whose contents could not be removed.
    pub failed: u64,
    /// First error of the files whose contents could not be removed.
    pub first_error: Option<FileError>,
    /// Number of rows that cannot be decoded.
    pub unreadable: u64,
}

impl FileManager {
    /// Deletes incomplete uploads and contents without a record, unless another process may still use them
    /// (`in_use_elsewhere`), and counts the bytes of existing files.
    pub(super) fn delete_leftovers(&self, in_use_elsewhere: bool) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("The folder of the files {} cannot be used: {error}.", self.folder.display())
        };
        if in_use_elsewhere {
            return self.count_existing().map_err(|error| failed(&error));
        }
        for entry in fs::read_dir(&self.upload_folder).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            fs::remove_file(entry.path()).map_err(|error| failed(&error))?;
        }
        // With a bucket, the folder contains only contents that were stored before the bucket was configured.
        if self.bucket.is_some() {
            return self.count_existing().map_err(|error| failed(&error));
        }
        let mut swept = 0_u64;
        for entry in fs::read_dir(&self.folder).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let name = entry.file_name();
            let Some(id) = name.to_str().filter(|name| object_id::is_valid(FILE_ID_PREFIX, name)) else {
                continue;
            };
            if matches!(self.store.get(id), Ok(None)) {
                fs::remove_file(entry.path()).map_err(|error| failed(&error))?;
                swept += 1;
            }
        }
        if swept > 0 {
            tracing::info!(name: "files_swept", leftovers = %swept);
        }
        self.count_existing().map_err(|error| failed(&error))
    }

    fn count_existing(&self) -> Result<(), StoreError> {
        let mut after: Option<String> = None;
        loop {
            let page = self.store.list_all(after.as_deref(), PAGE_SIZE)?;
            page.files.iter().for_each(|file| self.quota.add_bytes(FileOwner::of_record(file), file.bytes));
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Deletes expired files that no running batch uses. Returns their number.
    ///
    /// # Errors
    /// Returns the store's error; the next call continues.
    pub fn delete_expired(&self, expiry_context: FileExpiryContext) -> Result<u64, StoreError> {
        let (mut swept, mut position) = (0, None::<Vec<u8>>);
        loop {
            let page = self.store.expired_page(expiry_context.now, position.as_deref(), PAGE_SIZE)?;
            let files: Result<Vec<_>, _> =
                page.ids.iter().filter_map(|id| self.store.get(id).transpose()).collect();
            swept += self.delete_unused(&files?, expiry_context)?;
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        let mut after: Option<String> = None;
        // IDs increase with time, so all files after the first one that has not expired have not expired either.
        while let Some(retention) = expiry_context.retention {
            let page = self.store.list_all(after.as_deref(), PAGE_SIZE)?;
            let is_retained =
                |file: &FileRecord| file.created_at.saturating_add(retention) > expiry_context.now;
            let count = page.files.iter().position(is_retained).unwrap_or(page.files.len());
            swept += self.delete_unused(page.files.get(..count).unwrap_or_default(), expiry_context)?;
            after = page.next;
            if count < page.files.len() || after.is_none() {
                break;
            }
        }
        Ok(swept)
    }

    /// Deletes those of the files that have expired and that no running batch uses; returns their number. No batch can
    /// begin to use an expired file.
    fn delete_unused(
        &self,
        files: &[FileRecord],
        expiry_context: FileExpiryContext,
    ) -> Result<u64, StoreError> {
        let expired: Vec<&FileRecord> = files.iter().filter(|file| expiry_context.is_expired(file)).collect();
        let ids: Vec<&str> = expired.iter().map(|file| file.id.as_str()).collect();
        let used = self.consumers.get().filter(|_| !ids.is_empty()).map(|runs| runs.used_files(&ids));
        let mut swept = 0;
        for file in expired {
            if !used.as_ref().is_some_and(|used| used.contains(file.id.as_str())) {
                swept += u64::from(self.delete_with_contents(file)?);
            }
        }
        Ok(swept)
    }

    /// Deletes a record and then its contents; returns false if the record was already deleted.
    pub(super) fn delete_with_contents(&self, file: &FileRecord) -> Result<bool, StoreError> {
        let gone = match &self.shared {
            None => self.store.delete(file)?,
            Some(_) => self.store.delete_and_update_usage(file)?,
        };
        if gone {
            self.remove_contents(file);
            if self.shared.is_none() {
                self.quota.release_bytes(FileOwner::of_record(file), file.bytes);
            }
        }
        Ok(gone)
    }

    /// Removes the contents of a deleted file; those that cannot be removed now are removed by
    /// [`FileManager::finish_interrupted_deletions`].
    pub fn remove_contents(&self, file: &FileRecord) {
        self.try_remove_contents(file).ok();
    }

    fn try_remove_contents(&self, file: &FileRecord) -> Result<(), FileError> {
        // The file is removed from the archives before and after its deletion, because an export may copy the file in
        // between.
        self.delete_from_archives(&file.id);
        let deleted = self.delete_contents(file);
        self.delete_from_archives(&file.id);
        deleted.map_err(FileError::Io)?;
        Ok(self.store.record_contents_deleted(&file.id)?)
    }

    /// Removes the contents of files whose deletion was interrupted, by the end of the process or an outage of the
    /// bucket. A file whose contents cannot be removed does not stop the others; the next call tries it again. Called
    /// by one gateway of a fleet.
    ///
    /// # Errors
    /// Returns the store's error; the next call continues.
    pub fn finish_interrupted_deletions(&self) -> Result<DeletionOutcome, StoreError> {
        let (mut outcome, mut after) = (DeletionOutcome::default(), None::<Vec<u8>>);
        loop {
            let page = self.store.deleted_page(after.as_deref(), PAGE_SIZE)?;
            outcome.unreadable += page.unreadable;
            for file in &page.files {
                match self.try_remove_contents(file) {
                    Ok(()) => outcome.finished += 1,
                    Err(FileError::Store(error)) => return Err(error),
                    Err(error) => {
                        outcome.failed += 1;
                        outcome.first_error.get_or_insert(error);
                    }
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(outcome);
            }
        }
    }

    fn delete_from_archives(&self, id: &str) {
        if let Some((folder, purge)) = self.archives.get().filter(|_| object_id::is_valid(FILE_ID_PREFIX, id))
        {
            purge(folder, id);
        }
    }
}
