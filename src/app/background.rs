//! Background tasks: name resolution, health checks, writes of key use, spends and latency records, and the comparison
//! of the clock with the system's.

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

/// Interval of name resolution.
const RESOLVE: Duration = Duration::from_secs(30);
/// Interval of writes of the last use of keys and of latency records.
const NOTE: Duration = Duration::from_secs(30);
/// Interval of writes of spends: a crash may lose that much of a budget's use.
const SPENDS: Duration = Duration::from_secs(1);
/// Interval of the removal of expired images.
const TIDY: Duration = Duration::from_secs(10);
/// Interval of the sweep of idle connections.
const SWEEP: Duration = Duration::from_secs(5);
/// Interval of the deletion of expired files.
const OLD: Duration = Duration::from_secs(60);
/// Interval of the check whether a backup is due.
const EXPORT: Duration = Duration::from_secs(1);
/// Interval of the measurement of stored sizes.
const MEASURE: Duration = Duration::from_secs(60);
/// Interval of the health check of the store.
const STORE: Duration = Duration::from_millis(250);

/// Interval of the comparison with the system clock.
const CLOCK: Duration = Duration::from_secs(1);

/// Starts all background tasks.
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
            // Charges of this process are counted by the process that has the store.
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

/// Milliseconds after which a stuck store does not recover. A slow disk may take some seconds; requests go on meanwhile
/// within the limit of unwritten charges.
const HOPELESS: u64 = 30_000;

/// Aborts the process if the store is stuck. Waiting could lose what it still acknowledges; the next start recovers.
fn watch_store(house: &House) {
    if let StoreHealth::Stuck { milliseconds: milliseconds @ HOPELESS.. } = house.vault.store.health() {
        let since = milliseconds.to_string();
        log::event(log::error(), "store_stuck", &[("milliseconds", &since)]);
        log::flush();
        std::process::abort();
    }
}

/// Follows a system clock that is set while the process runs: by NTP after the start, or after the machine slept.
fn follow_clock(clock: Clock) {
    let told =
        |name: &str, by: Duration| log::event(log::warn(), name, &[("seconds", &by.as_secs().to_string())]);
    match clock.follow(clock::system()) {
        Followed::Same => {}
        Followed::Moved(by) => told("clock_moved", by),
        Followed::Ahead(by) => told("clock_ahead", by),
    }
}

/// Deletes expired files.
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

/// Resolves the names of all providers, and publishes the addresses to the pools and health checks.
pub async fn resolve(house: &House) {
    let live = house.live();
    resolve_all(live.providers.iter()).await;
    live.publish().await;
    house.health_checks.publish(&live).await;
}

/// Resolves the names of all providers again, and publishes the addresses if one has changed.
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

/// Waits for the stop signal, or for the end of its sender.
async fn told(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}

/// Runs a task at an interval until the stop signal.
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
