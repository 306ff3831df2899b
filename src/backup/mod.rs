//! Export, import, verification and repair of all persistent data: the rows of the store, the replica files of the
//! ledger, and the contents of files. These commands require that no gateway has the store open; a running gateway
//! makes its own exports. All calls block.

mod batches;
mod export;
mod file_copy;
mod import;
mod manifest;
mod progress;
mod repair;
pub mod rotation;
pub mod state;
mod throttle;
mod verify;

pub use export::export_archive;
pub use import::import_archive;
pub use progress::ProgressReporter;
pub use repair::{RepairReport, repair_store};
pub use verify::{VerifyReport, verify};

use crate::config::settings::{BucketSettings, StorageSettings};
use crate::storage::files::StoredContents;
use crate::storage::stores::{
    LEDGER_REPLICA_FOLDER, PEPPER_FILE, STORE_FOLDER, StoreLocation, require_store, store_location,
};
use penstock_storage::files::FileStore;
use penstock_storage::{Store, StoreError, StoreOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of all persistent data.
#[derive(Clone, Debug)]
pub struct DataPaths {
    /// Settings of the store, with its folder.
    pub storage: StorageSettings,
    /// Folder of file contents.
    pub files: PathBuf,
    /// Bucket of file contents, if one is configured.
    pub bucket: Option<BucketSettings>,
}

/// Counts of an export or an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Number of store rows that were exported or imported.
    pub rows: u64,
    /// Number of plain files: file contents, ledger months and the pepper.
    pub files: u64,
    /// Total size of the plain files, in bytes.
    pub bytes: u64,
    /// Number of files that were dropped because their contents were deleted after the export.
    pub dropped_files: u64,
    /// Number of parts of the ledger's second copy that differed from the store and were repaired before an export.
    pub repaired_replica_parts: u64,
}

impl DataPaths {
    fn store_path(&self) -> PathBuf {
        self.storage.path.join(STORE_FOLDER)
    }

    fn ledger_path(&self) -> PathBuf {
        self.storage.path.join(LEDGER_REPLICA_FOLDER)
    }

    fn pepper_path(&self) -> PathBuf {
        self.storage.path.join(PEPPER_FILE)
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions { ballast_bytes: self.storage.ballast_bytes, ..StoreOptions::default() }
    }

    /// Opens the store, which must exist.
    fn open_store(&self) -> Result<Arc<dyn Store>, String> {
        require_store(&self.storage)?;
        let opened = match store_location(&self.storage) {
            StoreLocation::Database(options) => penstock_storage::open_postgres(&options),
            StoreLocation::Folder(engine) => (engine.open)(&self.store_path(), self.store_options()),
        };
        opened.map_err(|error| store_error_message(&error))
    }

    /// Opens the storage of the contents of uploaded files.
    fn open_contents(&self, store: &Arc<dyn Store>) -> Result<StoredContents, String> {
        StoredContents::open(self.files.clone(), self.bucket.as_ref(), FileStore::new(store.clone()))
    }

    /// Returns the paths below another folder, with the file contents in it; the bucket is the same.
    fn relocated(&self, to: &Path) -> Self {
        let storage = StorageSettings { path: to.to_owned(), ..self.storage.clone() };
        Self { storage, files: to.join(file_copy::FILES_FOLDER), bucket: self.bucket.clone() }
    }
}

/// Formats a store error as a sentence.
fn store_error_message(error: &StoreError) -> String {
    match error {
        StoreError::Locked { path } => {
            format!("The store at {} is open in another process: stop the gateway first.", path.display())
        }
        error => crate::storage::stores::to_sentence(&error.to_string()),
    }
}

#[cfg(test)]
mod tests;
