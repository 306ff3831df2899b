//! Archives at their times: one is due so long after the last, or after the storage folder was made, whoever
//! started the gateway in between. One that fails is told, and tried again later; requests never wait for it.

use crate::backup::rotation::{Job, last, written};
use crate::backup::{Place, Saved};
use crate::config::settings::Settings;
use crate::state::House;
use crate::storage::stores::ADMIN_TOKEN;
use crate::telemetry::log;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest pause after one that failed.
const AGAIN: Duration = Duration::from_secs(600);

/// What is known of the archives, in Unix seconds.
pub struct Exports {
    /// What is saved, and the folder of the archives: those of the start, as for whoever takes deleted files out of them.
    place: Place,
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

    fn due(&self, now: u64, every: Duration) -> bool {
        let rest = every.min(AGAIN).as_secs();
        now >= self.since.load(Ordering::Relaxed).saturating_add(every.as_secs().max(1))
            && now >= self.failed.load(Ordering::Relaxed).saturating_add(rest.max(1))
    }
}

/// Makes an archive if one is due.
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
        // Not begun again, and no failure: the gateway stops.
        Err(_) if house.is_draining() => return,
        Err(why) => {
            house.exports.failed.store(now, Ordering::Relaxed);
            log::event(log::error(), "export_failed", &[("why", &why)]);
        }
    }
    house.metrics.exported(good);
}
