//! Export, import, verification and repair of all persistent data: the store's rows, the ledger's replica files
//! and the file contents. They run while no gateway has the store open; the gateway itself exports while it
//! runs. All calls block.

mod batches;
mod copy;
mod export;
mod import;
mod manifest;
mod progress;
mod repair;
pub mod rotation;
pub mod schedule;
mod throttle;
mod verify;

pub use export::export;
pub use import::import;
pub use progress::Progress;
pub use repair::{Salvaged, repair};
pub use verify::{Verdict, verify};

use crate::config::settings::StorageSettings;
use crate::storage::stores::{LEDGER, PEPPER, STORE};
use penstock_storage::{Store, StoreError, StoreOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of all persistent data.
#[derive(Clone, Debug)]
pub struct Place {
    /// Settings of the store, with its folder.
    pub storage: StorageSettings,
    /// Folder of file contents.
    pub files: PathBuf,
}

/// Counts of an export or an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Number of rows of the store.
    pub rows: u64,
    /// Number of plain files: file contents and ledger months.
    pub files: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Number of files that were dropped because their contents were deleted after the export.
    pub gone: u64,
}

impl Place {
    fn store(&self) -> PathBuf {
        self.storage.path.join(STORE)
    }

    fn ledger(&self) -> PathBuf {
        self.storage.path.join(LEDGER)
    }

    fn pepper(&self) -> PathBuf {
        self.storage.path.join(PEPPER)
    }

    fn options(&self) -> StoreOptions {
        StoreOptions { ballast_bytes: self.storage.ballast_bytes, ..StoreOptions::default() }
    }

    /// Opens the store, which must exist.
    fn open(&self) -> Result<Arc<dyn Store>, String> {
        let store = self.store();
        if !store.is_dir() {
            return Err(format!("There is no store in {}.", self.storage.path.display()));
        }
        penstock_storage::open(&store, self.options()).map_err(|error| told(&error))
    }

    /// Returns the same paths below another folder, with the file contents in it.
    fn moved(&self, to: &Path) -> Self {
        let storage = StorageSettings { path: to.to_owned(), ..self.storage.clone() };
        Self { storage, files: to.join(copy::FILES) }
    }
}

/// Formats a store error as a sentence.
fn told(error: &StoreError) -> String {
    match error {
        StoreError::Locked { path } => {
            format!("The store at {} is open in another process: stop the gateway first.", path.display())
        }
        error => crate::storage::stores::sentence(&error.to_string()),
    }
}
