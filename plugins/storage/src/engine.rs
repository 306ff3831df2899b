//! Table of the storage engines that store their data in a folder.

use std::path::Path;
use std::sync::Arc;

use crate::{RepairOutcome, Store, StoreError, StoreOptions, sled};

/// Function that copies the readable rows of a damaged store (first path) to a new one (second path), and reports the
/// number of copied rows after each chunk.
pub type RepairStoreFn =
    fn(&Path, &Path, StoreOptions, &mut dyn FnMut(u64)) -> Result<RepairOutcome, StoreError>;

/// Function that opens the store in a folder, and creates it if missing. A folder with a store of another engine is
/// refused.
pub type OpenStoreFn = fn(&Path, StoreOptions) -> Result<Arc<dyn Store>, StoreError>;

/// Storage engine that stores its data in a folder.
#[derive(Clone, Copy)]
pub struct FolderEngine {
    /// Name in the configuration.
    pub name: &'static str,
    /// Description of one line, for the schema of the configuration.
    pub summary: &'static str,
    /// Opens the store in a folder.
    pub open: OpenStoreFn,
    /// Repairs a store; `None` for an engine without a repair, whose damaged stores are restored from an archive.
    pub repair: Option<RepairStoreFn>,
}

/// All storage engines with a folder, the default first.
pub static FOLDER_ENGINES: &[&FolderEngine] = &[&EMBEDDED_ENGINE];

/// Default engine.
pub static EMBEDDED_ENGINE: FolderEngine = FolderEngine {
    name: "embedded",
    summary: "Embedded store in the folder.",
    open: sled::open,
    repair: Some(sled::repair_with_progress),
};

impl FolderEngine {
    /// Returns the engine with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<&'static Self> {
        FOLDER_ENGINES.iter().copied().find(|engine| engine.name == name)
    }
}

impl std::fmt::Debug for FolderEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for FolderEngine {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for FolderEngine {}
