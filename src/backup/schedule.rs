//! Archives at their times: one is due so long after the last, or after the storage folder was made, whoever
//! started the gateway in between. One that fails is told, and tried again later; requests never wait for it.

use crate::backup::Place;
use crate::backup::rotation::{last, written};
use crate::config::settings::Settings;
use crate::storage::stores::ADMIN_TOKEN;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest pause after one that failed.
const AGAIN: Duration = Duration::from_secs(600);

/// What is known of the archives, in Unix seconds.
pub struct Exports {
    /// What is saved, and the folder of the archives: those of the start, as for whoever takes deleted files out of them.
    pub(crate) place: Place,
    folder: PathBuf,
    /// When the last was finished; before the first when the storage folder was made.
    since: AtomicU64,
    /// When the last was finished; 0 before the first.
    last: AtomicU64,
    /// When one failed; 0 before that.
    failed: AtomicU64,
}

impl Exports {
    /// What is there already.
    pub fn open(settings: &Settings, now: u64) -> Self {
        let last = last(&settings.exports.path).map(|at| at.min(now));
        let made = || written(&settings.storage.path.join(ADMIN_TOKEN)).map_or(now, |at| at.min(now));
        let since = AtomicU64::new(last.unwrap_or_else(made));
        let place = Place { storage: settings.storage.clone(), files: settings.files.path.clone() };
        let folder = settings.exports.path.clone();
        Self { place, folder, since, last: AtomicU64::new(last.unwrap_or(0)), failed: AtomicU64::new(0) }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// When the last was finished; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Returns true if an archive is due.
    pub fn is_due(&self, now: u64, every: Duration) -> bool {
        let rest = every.min(AGAIN).as_secs();
        now >= self.since.load(Ordering::Relaxed).saturating_add(every.as_secs().max(1))
            && now >= self.failed.load(Ordering::Relaxed).saturating_add(rest.max(1))
    }

    /// Notes an archive that was finished.
    pub fn set_finished(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Notes an archive that failed.
    pub fn set_failed(&self, now: u64) {
        self.failed.store(now, Ordering::Relaxed);
    }
}
