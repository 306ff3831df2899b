//! Directory of a store, and the operations on it that are safe against a power cut at any moment.
//!
//! ```text
//! lock          locked while the store is open
//! tip           number of the last acknowledged group
//! ballast       reserve file, deleted when the disk is full
//! sled/         the live database; only ever created by renaming a fully synced directory
//! sled.new/     under construction; discarded after a crash
//! sled.next/    complete and synced: replaces sled/ at the next opening
//! sled.old/     replaced; discarded
//! sled.salvage/ copy of a damaged database for a repair; discarded
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::statvfs;

use super::commit_marker::GroupNumberFile;
use crate::{StoreError, permissions};

/// Number of attempts to take the lock of the directory, and the pause between two attempts.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Store directory, locked against other processes until dropped.
#[derive(Debug)]
pub(crate) struct StoreDir {
    root: PathBuf,
    _lock: File,
}

/// Takes the lock. After this process has closed a store, the lock may remain for a moment: a child process that
/// another thread is starting inherits the descriptor of the lock and closes it only at its `exec`.
fn lock_with_retry(lock: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_ATTEMPTS {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            done => return done,
        }
    }
    lock.try_lock()
}

impl StoreDir {
    /// Locks the directory, creates it if missing, and completes or reverts an operation that a crash interrupted.
    pub(crate) fn acquire(root: &Path) -> Result<StoreDir, StoreError> {
        let failed = |error| StoreError::io("open its directory", &error);
        permissions::create_private_dir_all(root).map_err(failed)?;
        // Absolute path, so that a later change of the working directory has no effect.
        let root = root.canonicalize().map_err(failed)?;
        let lock = permissions::open_options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join("lock"))
            .map_err(failed)?;
        match lock_with_retry(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: root }),
            Err(TryLockError::Error(error)) => return Err(StoreError::io("lock its directory", &error)),
        }
        let folder = StoreDir { root, _lock: lock };
        folder.recover()?;
        Ok(folder)
    }

    /// Returns the path of the directory with the files of sled.
    pub(crate) fn database_path(&self) -> PathBuf {
        self.root.join("sled")
    }

    /// Returns the number of free bytes on the disk of the directory.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        free_bytes(&self.root)
    }

    /// Deletes the staging directory `sled.new` with its contents and returns its path.
    pub(crate) fn clear_staging_dir(&self) -> Result<PathBuf, StoreError> {
        let side = self.root.join("sled.new");
        remove_all(&side)?;
        Ok(side)
    }

    /// Returns the path of the reserve file, which is deleted when the disk is full.
    pub(crate) fn reserve_file_path(&self) -> PathBuf {
        self.root.join("ballast")
    }

    /// Returns the path of the file with the number of the last group.
    pub(crate) fn group_file_path(&self) -> PathBuf {
        self.root.join("tip")
    }

    /// Returns true if the directory contains a sled database.
    pub(crate) fn has_store(&self) -> bool {
        self.database_path().exists()
    }

    /// Returns `Corrupt` if commits were acknowledged, so that a lost database is not replaced by an empty one.
    pub(crate) fn check_never_used(&self) -> Result<(), StoreError> {
        match GroupNumberFile::read(&self.group_file_path())? {
            0 => Ok(()),
            groups => {
                let path = self.database_path();
                Err(StoreError::corrupt(format!("{} is missing, with {groups} commits", path.display())))
            }
        }
    }

    /// Replaces the live database by the database in the staging directory. Both must be closed. If a crash
    /// interrupts the replacement, [`StoreDir::acquire`] completes it.
    pub(crate) fn replace_database(&self, side: &Path) -> Result<(), StoreError> {
        sync_tree(side)?;
        if self.has_store() {
            self.rename(side, &self.root.join("sled.next"))?;
            self.recover()
        } else {
            self.rename(side, &self.database_path())
        }
    }

    fn recover(&self) -> Result<(), StoreError> {
        let (next, old) = (self.root.join("sled.next"), self.root.join("sled.old"));
        remove_all(&self.root.join("sled.new"))?;
        remove_all(&self.root.join("sled.salvage"))?;
        if next.exists() {
            if self.has_store() {
                remove_all(&old)?;
                self.rename(&self.database_path(), &old)?;
            }
            self.rename(&next, &self.database_path())?;
        }
        remove_all(&old)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        fs::rename(from, to).map_err(|error| StoreError::io("rename a directory", &error))?;
        sync_dir(&self.root)
    }
}

/// Removes half-written snapshots left by a crash: sled mistakes such a file for a complete one and then does not open.
pub(crate) fn remove_partial_snapshots(store: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("remove incomplete snapshots", &error);
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

/// Syncs every file and directory below `folder`, innermost first, and then `folder` itself.
pub(crate) fn sync_tree(folder: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("sync its directory", &error);
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

/// Syncs a directory, so that created, renamed and deleted names in it survive a power cut.
pub(crate) fn sync_dir(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|file| file.sync_all())
        .map_err(|error| StoreError::io("sync its directory", &error))
}

/// Returns the free bytes of the disk of a directory.
pub(crate) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = statvfs(folder)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Removes a directory with its contents; a missing directory is no error.
pub(crate) fn remove_all(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("remove a directory", &error))
        }
        _ => Ok(()),
    }
}
