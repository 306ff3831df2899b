//! Schedule of the archives: one is due at an interval after the last, or after the creation of the storage folder,
//! across restarts. A failed archive is logged and tried again later; requests never wait for it.

use crate::archive::scheduled::{Job, last, written};
use crate::archive::{Place, Saved};
use crate::config::settings::Settings;
use crate::house::House;
use crate::observe::log;
use crate::vault::ADMIN_TOKEN;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest pause after a failed archive.
const AGAIN: Duration = Duration::from_secs(600);

/// State of the archives, in Unix seconds.
pub struct Exports {
    /// Data paths and archive folder, as configured at the start; deletions of files use them too.
    place: Place,
    folder: PathBuf,
    /// Time of the last archive; before the first one, the creation time of the storage folder.
    since: AtomicU64,
    /// Time of the last archive; 0 before the first.
    last: AtomicU64,
    /// Time of the last failure; 0 if there was none.
    failed: AtomicU64,
}

impl Exports {
    /// Reads the state of the existing archives.
    pub fn open(settings: &Settings, now: u64) -> Self {
        let last = last(&settings.exports.path).map(|at| at.min(now));
        let made = || written(&settings.storage.path.join(ADMIN_TOKEN)).map_or(now, |at| at.min(now));
        let since = AtomicU64::new(last.unwrap_or_else(made));
        let place = Place { storage: settings.storage.clone(), files: settings.files.path.clone() };
        let folder = settings.exports.path.clone();
        Self { place, folder, since, last: AtomicU64::new(last.unwrap_or(0)), failed: AtomicU64::new(0) }
    }

    /// Folder of the archives.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Time of the last archive; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn due(&self, now: u64, every: Duration) -> bool {
        let rest = every.min(AGAIN).as_secs();
        now >= self.since.load(Ordering::Relaxed).saturating_add(every.as_secs().max(1))
            && now >= self.failed.load(Ordering::Relaxed).saturating_add(rest.max(1))
    }
}

/// Exports an archive if one is due.
pub async fn due(house: &Arc<House>) {
    let now = house.clock.unix();
    let every = house.live().settings.exports.every;
    if house.is_draining() || !every.is_some_and(|every| house.exports.due(now, every)) {
        return;
    }
    let (begun, own) = (Instant::now(), house.clone());
    let saved = tokio::task::spawn_blocking(move || make(&own)).await;
    let saved = saved.unwrap_or_else(|_| Err("Its thread ended.".to_owned()));
    told(house, saved, begun.elapsed());
}

fn make(house: &House) -> Result<Saved, String> {
    let live = house.live();
    let settings = &live.settings;
    Job {
        place: house.exports.place.clone(),
        store: house.vault.store.clone(),
        folder: house.exports.folder.clone(),
        keep: settings.exports.keep,
        free: settings.files.keep_free,
        now: house.clock.unix(),
        stop: &|| house.is_draining(),
    }
    .run()
}

fn told(house: &House, saved: Result<Saved, String>, took: Duration) {
    let now = house.clock.unix();
    let good = saved.is_ok();
    match saved {
        Ok(saved) => {
            house.exports.since.store(now, Ordering::Relaxed);
            house.exports.last.store(now, Ordering::Relaxed);
            let number = |number: u64| number.to_string();
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let (rows, files, bytes) = (number(saved.rows), number(saved.files), number(saved.bytes));
            let figures: [(&str, &str); 4] =
                [("rows", &rows), ("files", &files), ("bytes", &bytes), ("ms", &number(milliseconds))];
            log::event(log::info(), "exported", &figures);
        }
        // The gateway stops, so this is not a failure and is not retried.
        Err(_) if house.is_draining() => return,
        Err(why) => {
            house.exports.failed.store(now, Ordering::Relaxed);
            log::event(log::error(), "export_failed", &[("why", &why)]);
        }
    }
    house.metrics.exported(good);
}
