//! Reads of the contents of files, and the growing output files of batches.

use super::bucket::FileBucket;
use super::contents::{FileContents, LineReader};
use super::output::OutputFile;
use super::{FileError, FileManager, FileOwner, new_record, run_blocking, sync_folder};
use crate::storage::shared_contents::SharedContents;
use bytes::Bytes;
use penstock_storage::files::{FilePurpose, FileRecord};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

impl FileManager {
    /// Deletes the contents of a file.
    ///
    /// # Errors
    /// Returns any I/O error; the contents that remain then are deleted later.
    pub(super) fn delete_contents(&self, record: &FileRecord) -> std::io::Result<()> {
        match std::fs::remove_file(self.contents_path(&record.id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.bucket.as_ref().map_or(Ok(()), |bucket| bucket.delete(record))
    }

    /// Returns the bucket of the contents, if one is configured.
    #[must_use]
    pub fn bucket(&self) -> Option<&FileBucket> {
        self.bucket.as_deref()
    }

    /// Probes the bucket if its last call failed, and does nothing otherwise. So its state stays up to date even if no
    /// file is accessed. Blocks until the probe ends.
    pub fn probe_bucket_if_unavailable(&self) {
        let Some(bucket) = self.bucket().filter(|bucket| !bucket.is_available()) else { return };
        if bucket.probe_if_unavailable() {
            tracing::event!(name: "bucket_recovered", tracing::Level::INFO, {});
        }
    }

    /// Returns the contents that all gateways of a fleet can access; `None` without a fleet.
    #[must_use]
    pub fn shared_contents(&self) -> Option<SharedContents> {
        self.shared.as_ref()?;
        let upload_folder = self.upload_folder.clone();
        Some(match &self.bucket {
            Some(bucket) => SharedContents::in_bucket(bucket.clone(), upload_folder),
            None => SharedContents::in_folder(self.folder.clone(), upload_folder),
        })
    }

    /// Opens the contents of a file.
    ///
    /// # Errors
    /// Returns `InvalidData` if they do not match the record, and any I/O error.
    pub fn open_contents(&self, record: &FileRecord) -> std::io::Result<FileContents> {
        match (FileContents::open(&self.contents_path(&record.id), record), &self.bucket) {
            (Err(error), Some(bucket)) if error.kind() == ErrorKind::NotFound => bucket.open_contents(record),
            (opened, _) => opened,
        }
    }

    /// Reads the lines of a file one by one.
    ///
    /// # Errors
    /// Returns the errors of [`FileManager::open_contents`].
    pub fn read_lines(&self, record: &FileRecord) -> std::io::Result<LineReader> {
        Ok(LineReader::new(self.open_contents(record)?))
    }

    /// Reads the lines of a file from the offset of a line.
    ///
    /// # Errors
    /// Returns the errors of [`FileManager::open_contents`].
    pub fn read_lines_from(&self, record: &FileRecord, offset: u64) -> std::io::Result<LineReader> {
        Ok(LineReader::starting_at(self.open_contents(record)?, offset))
    }

    /// Reads up to `max_bytes` of a file from `offset` on. The read fails once the file is deleted, so a
    /// deletion ends the open downloads of the file.
    ///
    /// # Errors
    /// Returns [`FileError::Io`] of the kind `NotFound` if the file was deleted, and an error if bytes are damaged or
    /// the disk fails.
    pub async fn read(
        &self,
        open: &Arc<(FileRecord, FileContents)>,
        offset: u64,
        max_bytes: usize,
    ) -> Result<Bytes, FileError> {
        let (store, open) = (self.store.clone(), open.clone());
        run_blocking(move || {
            let (record, contents) = &*open;
            if store.get(&record.id)?.is_none() {
                return Err(FileError::Io(std::io::ErrorKind::NotFound.into()));
            }
            contents.read(offset, max_bytes).map_err(FileError::Io)
        })
        .await
    }

    /// Creates the record of a new file of results and, without a bucket, the empty and synced file. The caller commits
    /// the record ([`FileStore::insert_operations`](penstock_storage::files::FileStore::insert_operations)); a file
    /// without a committed record is deleted at the next start, or in a fleet by a later sweep.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn create_output(
        &self,
        owner: FileOwner<'_>,
        filename: String,
        url: &str,
        now: Duration,
    ) -> std::io::Result<FileRecord> {
        let record = new_record(owner, filename, FilePurpose::BatchOutput, now);
        // In a bucket, the first results create the first segment.
        if self.bucket.is_none() {
            let path = self.contents_path(&record.id);
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.sync_all()?;
            sync_folder(&self.folder)?;
        }
        Ok(FileRecord { url: Some(url.to_owned()), ..record })
    }

    /// Opens a growing file of results and truncates it to the size in its record.
    ///
    /// # Errors
    /// Returns `InvalidData` if committed bytes are missing or damaged, and any I/O error.
    pub fn open_output(&self, record: &FileRecord) -> std::io::Result<OutputFile> {
        match (OutputFile::open(&self.contents_path(&record.id), record), &self.bucket) {
            (Err(error), Some(bucket)) if error.kind() == ErrorKind::NotFound => bucket.open_output(record),
            (opened, _) => opened,
        }
    }
}
