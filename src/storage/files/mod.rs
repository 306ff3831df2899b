//! Files of clients: their records are in the store, their contents in a folder or in a bucket. If a bucket is
//! configured later, contents that are already in the folder are still read from there.
//!
//! A file exists once its record is committed, which happens after its contents are synced. It no longer exists once
//! its record is deleted, which happens before its contents are deleted. So a crash can only leave contents without a
//! record. The next start deletes them; in a fleet or in a bucket, a later sweep does. Calls block unless they are
//! `async`.

mod access;
mod block_checksums;
mod bucket;
mod bucket_sweep;
#[cfg(test)]
mod bucket_tests;
mod cleanup;
mod contents;
#[cfg(test)]
mod deletion_tests;
mod error;
mod expiry;
mod incomplete_uploads;
mod output;
pub mod quota;
mod segments;
mod shared_folder;
#[cfg(test)]
mod shared_folder_tests;
mod store_id;
mod stored_contents;
#[cfg(test)]
mod tests;
mod upload;

pub use bucket::{FileBucket, check_bucket};
pub use cleanup::DeletionOutcome;
pub use contents::{FileContents, FileLine, LineReader, NextLine};
pub use error::{FileError, io_to_api_error, store_to_api_error};
pub use expiry::FileExpiryContext;
pub use output::OutputFile;
pub use store_id::write_imported_store_id;
pub use stored_contents::StoredContents;
pub use upload::FileUpload;

use crate::config::settings;
use crate::storage::object_id;
use async_trait::async_trait;
use penstock_batch::upload_form::UploadFields;
use penstock_core::{ApiError, ErrorCode};
use penstock_object_storage::{ContentStore, FolderStore};
use penstock_storage::StoreError;
use penstock_storage::files::{FilePage, FilePurpose, FileQuery, FileRecord, FileStatus, FileStore};
use penstock_storage::ledger::CounterDelta;
use quota::{DiskUsage, UploadLimits};
use shared_folder::SuspectedLeftovers;
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// Prefix of file IDs.
pub const FILE_ID_PREFIX: &str = "file-";
/// Folder of incomplete uploads.
const UPLOAD_FOLDER: &str = "aside";

/// Parts of the program that use files, such as batches.
#[async_trait]
pub trait FileConsumers: Send + Sync {
    /// Returns those of `ids` whose files a running consumer reads or writes; all `ids` if this is unknown. The
    /// returned files are not deleted when they expire.
    fn used_files<'i>(&self, ids: &[&'i str]) -> HashSet<&'i str>;

    /// Ends all consumers of a file that the client wants to delete.
    ///
    /// # Errors
    /// Returns a refusal if the file cannot be deleted now.
    async fn end_file_consumers(&self, id: &str) -> Result<(), ApiError>;

    /// Requests the end of consumers of a deleted file that other gateways of a fleet added during the deletion. Does
    /// not wait for the end.
    async fn end_late_consumers(&self, _id: &str) {}
}

/// Owner of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileOwner<'a> {
    /// Public ID of the key.
    pub key: &'a str,
    /// Account of the key.
    pub account: &'a str,
}

impl<'a> FileOwner<'a> {
    /// Returns the owner of an existing file.
    const fn of_record(file: &'a FileRecord) -> Self {
        Self { key: file.key.as_str(), account: file.account.as_str() }
    }
}

/// Function that removes the contents of a file, by its id, from all archives of a folder.
pub type ArchivePurgeFn = fn(&Path, &str);

/// All files of the gateway.
pub struct FileManager {
    folder: PathBuf,
    upload_folder: PathBuf,
    store: FileStore,
    /// Bucket of the contents; `None` if they are in the folder.
    bucket: Option<Arc<FileBucket>>,
    quota: Arc<DiskUsage>,
    /// State of the shared folder of a fleet; `None` if no other gateway uses the folder.
    shared: Option<SuspectedLeftovers>,
    consumers: OnceLock<Arc<dyn FileConsumers>>,
    /// Folder of the gateway's archives, from which deleted files are removed too, and the function that does so.
    archives: OnceLock<(PathBuf, ArchivePurgeFn)>,
}

impl FileManager {
    /// Opens or creates the folder, and deletes what a crash left over, unless a process that still drains uses it
    /// (`in_use_elsewhere`).
    ///
    /// # Errors
    /// Returns a sentence for the operator if the folder cannot be used.
    pub fn open(
        settings: &settings::FileSettings,
        store: FileStore,
        in_use_elsewhere: bool,
    ) -> Result<Self, String> {
        let open_bucket = Self::bucket_opener(settings, &store);
        Self::open_with(settings, store.clone(), in_use_elsewhere, open_bucket)
    }

    fn open_with(
        settings: &settings::FileSettings,
        store: FileStore,
        in_use_elsewhere: bool,
        open_bucket: impl FnOnce(&Path) -> Result<Option<FileBucket>, String>,
    ) -> Result<Self, String> {
        let files = Self::create_folder(settings, store, None, open_bucket)?;
        if files.bucket.is_none() {
            files.check_folder(Duration::ZERO)?;
        }
        let forgotten = files.store.invalidate_usage();
        forgotten.map_err(|error| format!("The records of files cannot be written: {error}."))?;
        files.delete_leftovers(in_use_elsewhere)?;
        Ok(files)
    }

    /// Returns a function that opens the configured bucket, if there is one.
    fn bucket_opener(
        settings: &settings::FileSettings,
        store: &FileStore,
    ) -> impl FnOnce(&Path) -> Result<Option<FileBucket>, String> {
        let (bucket, store) = (settings.store.clone(), store.clone());
        move |upload_folder| {
            let open = |bucket| FileBucket::open(bucket, store, upload_folder.to_owned());
            bucket.as_ref().map(open).transpose()
        }
    }

    fn create_folder(
        settings: &settings::FileSettings,
        store: FileStore,
        shared: Option<SuspectedLeftovers>,
        open_bucket: impl FnOnce(&Path) -> Result<Option<FileBucket>, String>,
    ) -> Result<Self, String> {
        let folder = settings.path.clone();
        let upload_folder = folder.join(UPLOAD_FOLDER);
        penstock_storage::create_private_dir_all(&upload_folder).map_err(|error| {
            format!("The folder of the files {} cannot be made: {error}.", folder.display())
        })?;
        Ok(Self {
            bucket: open_bucket(&upload_folder)?.map(Arc::new),
            folder,
            upload_folder,
            store,
            quota: Arc::default(),
            shared,
            consumers: OnceLock::new(),
            archives: OnceLock::new(),
        })
    }

    /// Sets the consumers of files; only the first call has an effect.
    pub fn set_consumers(&self, runs: Arc<dyn FileConsumers>) {
        self.consumers.set(runs).ok();
    }

    /// Sets the folder of the archives; only the first call has an effect.
    pub fn set_archive_folder(&self, folder: PathBuf, purge: ArchivePurgeFn) {
        self.archives.set((folder, purge)).ok();
    }

    /// Returns the store of the records.
    #[must_use]
    pub const fn file_record_store(&self) -> &FileStore {
        &self.store
    }

    /// Returns the path of the contents of a file in the folder.
    #[must_use]
    pub fn contents_path(&self, id: &str) -> PathBuf {
        // Records only contain IDs that the gateway generated. Any other ID must not lead to a path outside of the
        // folder.
        if object_id::is_valid(FILE_ID_PREFIX, id) {
            self.folder.join(id)
        } else {
            self.upload_folder.join("none")
        }
    }

    /// Returns a file of this key, unless it has expired.
    ///
    /// # Errors
    /// Returns 404 if the key has no file of this ID, even if another key has.
    pub async fn get(
        &self,
        key: &str,
        id: &str,
        expiry_context: FileExpiryContext,
    ) -> Result<FileRecord, ApiError> {
        if !object_id::is_valid(FILE_ID_PREFIX, id) {
            return Err(file_not_found());
        }
        let (store, id) = (self.store.clone(), id.to_owned());
        let found = run_blocking(move || Ok(store.get(&id)?)).await?;
        found.filter(|file| file.key == key && !expiry_context.is_expired(file)).ok_or_else(file_not_found)
    }

    /// Lists a page of a key's files, without expired ones.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn list(
        &self,
        query: FileListQuery,
        expiry_context: FileExpiryContext,
    ) -> Result<FilePage, ApiError> {
        let store = self.store.clone();
        let page = run_blocking(move || {
            let FileListQuery { key, purpose, after, ascending, limit } = &query;
            let query = FileQuery {
                key,
                purpose: *purpose,
                after: after.as_deref(),
                ascending: *ascending,
                limit: *limit,
            };
            Ok(store.list(&query, |file| !expiry_context.is_expired(file))?)
        });
        Ok(page.await?)
    }

    /// Starts an upload for this owner.
    ///
    /// # Errors
    /// Returns an error if there is no space or the disk fails.
    pub fn start_upload(&self, owner: FileOwner<'_>, bounds: UploadLimits) -> Result<FileUpload, FileError> {
        FileUpload::new(&self.upload_folder, &self.folder, self.new_upload_reservation(owner)?, bounds)
    }

    /// Stores an uploaded file.
    ///
    /// # Errors
    /// Returns an error if lines are invalid, or the disk or the store fails. If the store fails, the file may exist
    /// nevertheless; contents without a record are deleted later as leftovers.
    pub fn store_upload(
        &self,
        incoming: FileUpload,
        owner: FileOwner<'_>,
        fields: UploadFields,
        now: Duration,
    ) -> Result<FileRecord, FileError> {
        let bounds = incoming.upload_limits();
        let settled = incoming.finish()?;
        let record = FileRecord {
            bytes: settled.bytes,
            sha256: Some(settled.sha256.clone()),
            table_checksum: Some(settled.table_checksum),
            expires_at: fields.expires_after.map(|seconds| now.as_secs() + seconds),
            status: FileStatus::Processed,
            lines: settled.validated.lines,
            url: Some(settled.validated.url.to_owned()),
            ..new_record(owner, fields.filename, FilePurpose::Batch, now)
        };
        let (source, taken) = settled.into_parts();
        match &self.bucket {
            None => FolderStore::new(&self.folder).create_from_file(&record.id, source),
            Some(bucket) => bucket.store_complete_file(&record, source),
        }
        .map_err(FileError::Io)?;
        if let Err(error) = self.insert_record(&record, bounds) {
            // If the disk is full, the contents are deleted at once to free their space. After other errors they
            // stay, because the record may have been stored nevertheless; if it was not, a later sweep deletes them.
            if matches!(error, FileError::Quota(_) | FileError::Store(StoreError::Full)) {
                self.delete_contents(&record).ok();
            }
            return Err(error);
        }
        taken.commit();
        Ok(record)
    }

    /// Adds the bytes of results to the used bytes of their owner; a negative number releases bytes. Returns the counter
    /// changes that have to be committed with the results; none if the bytes are counted in memory only.
    #[must_use]
    pub fn add_used_bytes(&self, owner: FileOwner<'_>, bytes: i64) -> Vec<CounterDelta> {
        if self.shared.is_some() {
            return FileStore::usage_deltas(owner.key, bytes);
        }
        if bytes < 0 {
            self.quota.release_bytes(owner, bytes.unsigned_abs());
        } else {
            self.quota.add_bytes(owner, bytes.unsigned_abs());
        }
        Vec::new()
    }

    /// Deletes a file, after its consumers have ended. When the call succeeds, the file is no longer readable.
    ///
    /// # Errors
    /// Returns 404 if this key has no such file, 409 while a batch writes to it, and 503 if a consumer does not end in
    /// time or the store cannot be used.
    pub async fn delete(
        self: &Arc<Self>,
        key: &str,
        id: &str,
        expiry_context: FileExpiryContext,
    ) -> Result<(), ApiError> {
        let record = self.get(key, id, expiry_context).await?;
        if record.status == FileStatus::Uploaded {
            let message = "A running batch writes its results to this file; cancel the batch first.";
            return Err(ApiError::with_message(ErrorCode::Conflict, message));
        }
        if let Some(runs) = self.consumers.get() {
            runs.end_file_consumers(id).await?;
        }
        let files = self.clone();
        let gone = run_blocking(move || Ok(files.delete_with_contents(&record)?)).await?;
        if let Some(consumers) = self.consumers.get() {
            consumers.end_late_consumers(id).await;
        }
        if gone { Ok(()) } else { Err(file_not_found()) }
    }
}

/// Query of the file list.
#[derive(Clone, Debug)]
pub struct FileListQuery {
    /// Public ID of the key.
    pub key: Box<str>,
    /// Purpose of the listed files; `None` for all files.
    pub purpose: Option<FilePurpose>,
    /// ID of the file before the page; `None` for the first page.
    pub after: Option<String>,
    /// True for the oldest first.
    pub ascending: bool,
    /// Maximum number of files, at least 1.
    pub limit: usize,
}

fn new_record(owner: FileOwner<'_>, filename: String, purpose: FilePurpose, now: Duration) -> FileRecord {
    FileRecord {
        id: object_id::new(FILE_ID_PREFIX, now),
        key: owner.key.to_owned(),
        account: owner.account.to_owned(),
        filename,
        purpose,
        bytes: 0,
        sha256: None,
        table_checksum: None,
        created_at: now.as_secs(),
        finished_at: None,
        expires_at: None,
        status: FileStatus::Uploaded,
        status_details: None,
        lines: 0,
        url: None,
    }
}

fn file_not_found() -> ApiError {
    ApiError::with_message(ErrorCode::NotFound, "There is no file of this id for this API key.")
}

/// Runs a blocking call on a blocking thread.
pub async fn run_blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    spawn_blocking(call).await.unwrap_or(Err(FileError::ThreadEnded))
}

/// Syncs a folder, so that renames in it survive a power loss.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
