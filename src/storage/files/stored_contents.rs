//! Contents of files for commands that run while no gateway uses the store. The contents are in the folder or in the
//! bucket. All calls block.

use super::bucket::FileBucket;
use super::contents::FileContents;
use crate::config::settings::BucketSettings;
use penstock_storage::files::{FileRecord, FileStore};
use std::fs::{self, File};
use std::io::{ErrorKind, Result};
use std::path::PathBuf;

/// Contents of files in the folder and in the bucket.
pub struct StoredContents {
    folder: PathBuf,
    bucket: Option<FileBucket>,
}

impl StoredContents {
    /// Opens the contents.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the bucket cannot be used.
    pub fn open(
        folder: PathBuf,
        bucket: Option<&BucketSettings>,
        store: FileStore,
    ) -> std::result::Result<Self, String> {
        let bucket = bucket.map(|settings| FileBucket::open(settings, store, std::env::temp_dir()));
        let bucket = bucket.transpose()?;
        if let Some(bucket) = &bucket {
            bucket
                .check_usable()
                .map_err(|error| format!("The contents of files cannot be read: {error}."))?;
        }
        Ok(Self { folder, bucket })
    }

    /// Opens the contents of a record.
    ///
    /// # Errors
    /// Returns the errors of [`FileContents::open`].
    pub fn open_contents(&self, record: &FileRecord) -> Result<FileContents> {
        match (FileContents::open(&self.folder.join(&record.id), record), &self.bucket) {
            (Err(error), Some(bucket)) if error.kind() == ErrorKind::NotFound => bucket.open_contents(record),
            (opened, _) => opened,
        }
    }

    /// Returns true if there is a bucket.
    #[must_use]
    pub const fn has_bucket(&self) -> bool {
        self.bucket.is_some()
    }

    /// Copies the contents of a record from the bucket to a file, in the form that contents have in the folder.
    ///
    /// # Errors
    /// Returns `NotFound` if they are not in the bucket, `InvalidData` if a segment of a growing file is missing or
    /// damaged, and any I/O error.
    pub fn copy_from_bucket(&self, record: &FileRecord, file: &File) -> Result<()> {
        self.bucket.as_ref().ok_or(ErrorKind::NotFound)?.copy_to_file(record, file)
    }

    /// Returns true if the contents of a record are in the bucket, even if they are damaged.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn is_in_bucket(&self, record: &FileRecord) -> Result<bool> {
        self.bucket.as_ref().map_or(Ok(false), |bucket| bucket.has_contents(record))
    }

    /// Moves the contents of a record from the folder to the bucket, if a bucket is configured. If the bucket has the
    /// contents already, they are only removed from the folder.
    ///
    /// # Errors
    /// Returns any other I/O error. The next call continues.
    pub fn move_to_bucket(&self, record: &FileRecord) -> Result<()> {
        let (Some(bucket), path) = (&self.bucket, self.folder.join(&record.id)) else { return Ok(()) };
        if !path.exists() {
            return Ok(());
        }
        // The upload deletes its source, and the contents in the folder must still exist if the upload fails. So a copy
        // is uploaded.
        let copy = tempfile::NamedTempFile::new_in(&self.folder)?.into_temp_path();
        fs::copy(&path, &copy)?;
        match bucket.store_folder_contents(record, copy) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => fs::remove_file(path),
        }
    }
}
