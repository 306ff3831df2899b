//! All that lasts, as one thing: the store's rows, the ledger's second copy, the
//! contents of files. Proven, saved, restored and salvaged here, while no gateway
//! has the store open, and saved by the gateway itself while it works. Every call
//! blocks.

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

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The store, and the folder it is in.
    pub storage: StorageSettings,
    /// Folder of the contents of files.
    pub files: PathBuf,
}

/// What was saved or restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Rows of the store.
    pub rows: u64,
    /// Plain files: contents, the ledger's months.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files whose contents the archive no longer has, since they were deleted after it was made.
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

    /// The store, which has to be there.
    fn open(&self) -> Result<Arc<dyn Store>, String> {
        let store = self.store();
        if !store.is_dir() {
            return Err(format!("There is no store in {}.", self.storage.path.display()));
        }
        penstock_storage::open(&store, self.options()).map_err(|error| told(&error))
    }

    /// The same elsewhere, files and all in one folder.
    fn moved(&self, to: &Path) -> Self {
        let storage = StorageSettings { path: to.to_owned(), ..self.storage.clone() };
        Self { storage, files: to.join(copy::FILES) }
    }
}

/// A store's error as a sentence.
fn told(error: &StoreError) -> String {
    match error {
        StoreError::Locked { path } => {
            format!("The store at {} is open in another process: stop the gateway first.", path.display())
        }
        error => crate::storage::stores::sentence(&error.to_string()),
    }
}
