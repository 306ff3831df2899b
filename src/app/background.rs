//! What goes on beside the requests: names looked up again, providers checked,
//! the last use of keys, what they spent and measured speeds written down, the system's clock followed.

use super::backups;
use crate::http::buffer_pool;
use crate::state::House;
use crate::state::latency_records::{self, Extent};
use crate::telemetry::log;
use crate::time::clock::{self, Clock, Followed};
use crate::upstream::provider_state::resolve_all;
use penstock_storage::StoreHealth;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often names are looked up again.
const RESOLVE: Duration = Duration::from_secs(30);
/// How often the last use of keys and measured speeds are written down.
const NOTE: Duration = Duration::from_secs(30);
/// How often spends are written down: what a crash may forget of a budget.
const SPENDS: Duration = Duration::from_secs(1);
/// How often images that are over are let go.
const TIDY: Duration = Duration::from_secs(10);
/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(5);
/// How often files that are over are deleted.
const OLD: Duration = Duration::from_secs(60);
/// How often it is looked whether an archive is due.
const EXPORT: Duration = Duration::from_secs(1);
/// Interval between measurements of what is stored.
const MEASURE: Duration = Duration::from_secs(60);
/// Interval between looks at the store.
const STORE: Duration = Duration::from_millis(250);

/// How often the system's clock is looked at.
const CLOCK: Duration = Duration::from_secs(1);

/// Starts them all.
pub fn start(house: &Arc<House>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    vec![
        every(RESOLVE, stop, house, |house| async move { refresh(&house).await }),
        every(NOTE, stop, house, |house| async move {
            if !house.has_left() {
                let work = move || {
                    house.keyring.note_uses(&house.vault.keys);
                    latency_records::note(&house, Extent::Round);
                };
                tokio::task::spawn_blocking(work).await.ok();
            }
        }),
        every(SPENDS, stop, house, |house| async move {
            // The process that has the store counts what this one still charges.
            let work = move || {
                house.note_spends();
                house.drop_retired();
            };
            tokio::task::spawn_blocking(work).await.ok();
        }),
        every(SWEEP, stop, house, |house| async move {
            tokio::task::spawn_blocking(move || house.connection_pools.sweep()).await.ok();
        }),
        house.health_checks.start(house.health_context(), stop),
        every(TIDY, stop, house, |house| async move { house.shelf.clear(house.clock.now()) }),
        every(buffer_pool::IDLE, stop, house, |house| async move { house.buffers.tidy(Instant::now()) }),
        every(OLD, stop, house, |house| async move {
            if !house.has_left() {
                sweep_files(&house).await;
            }
        }),
        every(STORE, stop, house, |house| async move { watch_store(&house) }),
        every(CLOCK, stop, house, |house| async move { follow_clock(house.clock) }),
        every(EXPORT, stop, house, |house| async move { backups::due(&house).await }),
        every(MEASURE, stop, house, |house| async move {
            tokio::task::spawn_blocking(move || house.measure_disk()).await.ok();
        }),
    ]
}

/// A store that is stuck for this long does not come back by itself. A slow disk may take some seconds, and
/// requests go on meanwhile within what may be unwritten.
const HOPELESS: u64 = 30_000;

/// Waiting on a store that is locked up may lose what it still acknowledges: the process ends, and the next start
/// recovers.
fn watch_store(house: &House) {
    if let StoreHealth::Stuck { milliseconds: milliseconds @ HOPELESS.. } = house.vault.store.health() {
        let since = milliseconds.to_string();
        log::event(log::error(), "store_stuck", &[("milliseconds", &since)]);
        log::flush();
        std::process::abort();
    }
}

/// A clock that is set while the house runs: by NTP after the start, or after the machine slept.
fn follow_clock(clock: Clock) {
    let told =
        |name: &str, by: Duration| log::event(log::warn(), name, &[("seconds", &by.as_secs().to_string())]);
    match clock.follow(clock::system()) {
        Followed::Same => {}
        Followed::Moved(by) => told("clock_moved", by),
        Followed::Ahead(by) => told("clock_ahead", by),
    }
}

/// Deletes the files that are over.
async fn sweep_files(house: &House) {
    let (files, at) = (house.files.clone(), house.when());
    let swept = tokio::task::spawn_blocking(move || files.sweep(at)).await;
    let told = |name: &str, what: &str| log::event(log::info(), name, &[("files", what)]);
    match swept {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(swept)) => told("files_over", &swept.to_string()),
        Ok(Err(error)) => log::event(log::error(), "files_not_swept", &[("why", &error.to_string())]),
    }
}

/// Looks every provider's name up, and publishes the addresses to the pools and to the health checks.
pub async fn resolve(house: &House) {
    let live = house.live();
    resolve_all(live.providers.iter()).await;
    live.publish().await;
    house.health_checks.publish(&live).await;
}

/// Looks every provider's name up again, and publishes the addresses if one has changed.
async fn refresh(house: &House) {
    let live = house.live();
    let addresses = || live.providers.iter().map(|provider| provider.route.address()).collect::<Vec<_>>();
    let before = addresses();
    resolve_all(live.providers.iter()).await;
    if addresses() != before {
        live.publish().await;
        house.health_checks.publish(&live).await;
    }
}

/// Ends when told to stop, or when nobody is left to tell.
async fn told(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}

/// Does something again and again until told to stop.
fn every<F>(
    pause: Duration,
    stop: &watch::Receiver<bool>,
    house: &Arc<House>,
    work: impl Fn(Arc<House>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut stop, house) = (stop.clone(), house.clone());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(pause);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => work(house.clone()).await,
                () = told(&mut stop) => return,
            }
        }
    })
}
