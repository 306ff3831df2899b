//! The folder of a store, and the steps on it that must survive a power cut at any moment.
//!
//! ```text
//! lock          held for as long as the store is open
//! tip           number of the last acknowledged group
//! ballast       room kept back for a full disk
//! sled/         the live store; it only ever appears by a rename of a folder synced to the last file
//! sled.new/     being built; worthless after a crash
//! sled.next/    built and synced: takes the place of sled/ as soon as anybody opens the store
//! sled.old/     was replaced; worthless
//! sled.salvage/ copy of a damaged store a repair works on; worthless
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::statvfs;

use crate::{StoreError, private};

/// Tries for a lock that another process has, and the pause between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// A store's folder, locked against other processes until dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    _lock: File,
}

/// Takes the lock. A lock of this very process may outlive its store for a moment: until a program that another
/// thread is just starting has closed what it inherited.
fn locked(lock: &File) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    lock.try_lock()
}

impl Folder {
    /// Takes the folder, made if it is missing, and finishes or undoes what a crash left half done.
    pub(crate) fn claim(root: &Path) -> Result<Folder, StoreError> {
        let failed = |error| StoreError::io("open its folder", &error);
        let fresh = !root.exists();
        private::folder(root).map_err(failed)?;
        // Absolute, so that a later change of the working folder does not lead elsewhere.
        let root = root.canonicalize().map_err(failed)?;
        if fresh && let Some(parent) = root.parent() {
            sync_dir(parent)?;
        }
        let lock = private::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(failed)?;
        match locked(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: root }),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock its folder", &error)),
        }
        let folder = Folder { root, _lock: lock };
        folder.settle()?;
        Ok(folder)
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.root.join("sled")
    }

    /// Bytes that may still be written to its disk.
    pub(crate) fn room(&self) -> io::Result<u64> {
        room(&self.root)
    }

    /// Where a store is built aside; empty.
    pub(crate) fn side(&self) -> Result<PathBuf, StoreError> {
        let side = self.root.join("sled.new");
        remove_all(&side)?;
        Ok(side)
    }

    pub(crate) fn ballast(&self) -> PathBuf {
        self.root.join("ballast")
    }

    pub(crate) fn note(&self) -> PathBuf {
        self.root.join("tip")
    }

    pub(crate) fn has_store(&self) -> bool {
        self.live().exists()
    }

    /// Makes a closed store built aside the live one. After a crash in between, [`Folder::claim`] goes on.
    pub(crate) fn promote(&self, side: &Path) -> Result<(), StoreError> {
        sync_tree(side)?;
        if self.has_store() {
            self.rename(side, &self.root.join("sled.next"))?;
            self.settle()
        } else {
            self.rename(side, &self.live())
        }
    }

    fn settle(&self) -> Result<(), StoreError> {
        let (next, old) = (self.root.join("sled.next"), self.root.join("sled.old"));
        remove_all(&self.root.join("sled.new"))?;
        remove_all(&self.root.join("sled.salvage"))?;
        if next.exists() {
            if self.has_store() {
                remove_all(&old)?;
                self.rename(&self.live(), &old)?;
            }
            self.rename(&next, &self.live())?;
        }
        remove_all(&old)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        fs::rename(from, to).map_err(|error| StoreError::io("rename a folder", &error))?;
        sync_dir(&self.root)
    }
}

/// Removes what a crash left of a snapshot being written: sled takes the file for a finished one, and then
/// does not open.
pub(crate) fn sweep(store: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("sweep its folder", &error);
    let entries = match fs::read_dir(store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Syncs every file and folder below `folder`, and itself, innermost first.
pub(crate) fn sync_tree(folder: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("sync its folder", &error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            File::open(entry.path()).and_then(|file| file.sync_all()).map_err(failed)?;
        }
    }
    sync_dir(folder)
}

/// Syncs the names in a folder.
pub(crate) fn sync_dir(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::io("sync its folder", &error))
}

/// Bytes that may still be written to the disk of a folder.
pub(crate) fn room(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

pub(crate) fn remove_all(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove a folder", &error))
        }
        _ => Ok(()),
    }
}
