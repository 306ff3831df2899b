//! State of the scheduled backups. A backup is due one interval after the last one, or after the storage folder was created,
//! regardless of restarts. A failed backup is logged and retried later; requests never wait for a backup.

use crate::backup::DataPaths;
use crate::backup::rotation::{last_archive_time, modified_at};
use crate::config::settings::Settings;
use crate::storage::stores::ADMIN_TOKEN_FILE;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum time between a failed backup and the next attempt.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);

/// State of the scheduled backups: their folder, and the times of the last backup and the last failure in Unix seconds.
pub struct BackupState {
    /// Paths of the data to back up, as configured at startup; deleted files are also removed from the backups in
    /// `folder`.
    pub(crate) data_paths: DataPaths,
    folder: PathBuf,
    /// End of the last backup; before the first backup, the time at which the storage folder was created.
    since: AtomicU64,
    /// End of the last backup; 0 before the first.
    last: AtomicU64,
    /// Time of the last failure; 0 if there is none.
    failed: AtomicU64,
}

impl BackupState {
    /// Reads the times of existing backups.
    pub fn open(settings: &Settings, now: u64) -> Self {
        let last = last_archive_time(&settings.exports.path).map(|at| at.min(now));
        let made =
            || modified_at(&settings.storage.path.join(ADMIN_TOKEN_FILE)).map_or(now, |at| at.min(now));
        let since = AtomicU64::new(last.unwrap_or_else(made));
        let data_paths = DataPaths {
            storage: settings.storage.clone(),
            files: settings.files.path.clone(),
            bucket: settings.files.store.clone(),
        };
        let folder = settings.exports.path.clone();
        Self { data_paths, folder, since, last: AtomicU64::new(last.unwrap_or(0)), failed: AtomicU64::new(0) }
    }

    /// Returns the folder of the backups.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the end of the last backup; 0 if there is none.
    pub fn last_backup_time(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Returns true if a backup has failed, and none has succeeded since.
    pub fn has_failed(&self) -> bool {
        let failed = self.failed.load(Ordering::Relaxed);
        failed > 0 && failed >= self.last.load(Ordering::Relaxed)
    }

    /// Returns true if a backup is due: `every` has passed since the last one, and ten minutes, or `every` if it is
    /// shorter, since the last failure.
    pub fn is_due(&self, now: u64, every: Duration) -> bool {
        let rest = every.min(MAX_RETRY_DELAY).as_secs();
        now >= self.since.load(Ordering::Relaxed).saturating_add(every.as_secs().max(1))
            && now >= self.failed.load(Ordering::Relaxed).saturating_add(rest.max(1))
    }

    /// Records a backup that was finished.
    pub fn set_finished(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Records a backup that failed.
    pub fn set_failed(&self, now: u64) {
        self.failed.store(now, Ordering::Relaxed);
    }
}
