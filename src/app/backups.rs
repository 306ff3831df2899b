//! Scheduled backups, made beside the requests.

use crate::backup::Saved;
use crate::backup::rotation::Job;
use crate::state::House;
use crate::telemetry::log;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes a backup if one is due.
pub async fn due(house: &Arc<House>) {
    let now = house.clock.unix();
    let every = house.live().settings.exports.every;
    if house.is_draining() || !every.is_some_and(|every| house.exports.is_due(now, every)) {
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
        folder: house.exports.folder().to_owned(),
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
            house.exports.set_finished(now);
            let number = |number: u64| number.to_string();
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let (rows, files, bytes) = (number(saved.rows), number(saved.files), number(saved.bytes));
            let figures: [(&str, &str); 4] =
                [("rows", &rows), ("files", &files), ("bytes", &bytes), ("ms", &number(milliseconds))];
            log::event(log::info(), "exported", &figures);
        }
        // Not retried, and no failure: the gateway stops.
        Err(_) if house.is_draining() => return,
        Err(why) => {
            house.exports.set_failed(now);
            log::event(log::error(), "export_failed", &[("why", &why)]);
        }
    }
    house.metrics.exported(good);
}
