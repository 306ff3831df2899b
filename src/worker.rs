//! Background tasks: resolving host names, health checks, writing the last use of keys, their spends and the measured
//! speeds, following the system's clock.

use crate::buffers;
use crate::clock::{self, Clock, Followed};
use crate::exports;
use crate::figures::{self, Extent};
use crate::house::House;
use crate::observe::log;
use crate::upstream::live::ProviderLive;
use penstock_storage::Health;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Interval between lookups of host names.
const RESOLVE: Duration = Duration::from_secs(30);
/// Interval between writes of the last use of keys and of measured speeds.
const NOTE: Duration = Duration::from_secs(30);
/// Interval between writes of spends: a crash may lose this much of a budget.
const SPENDS: Duration = Duration::from_secs(1);
/// Interval between removals of expired images.
const TIDY: Duration = Duration::from_secs(10);
/// Interval between sweeps of idle connections.
const SWEEP: Duration = Duration::from_secs(5);
/// Interval between deletions of expired files.
const OLD: Duration = Duration::from_secs(60);
/// Interval between checks for a due archive.
const EXPORT: Duration = Duration::from_secs(1);
/// Interval between measurements of disk usage.
const MEASURE: Duration = Duration::from_secs(60);
/// Interval between health checks of the store.
const STORE: Duration = Duration::from_millis(250);

/// Interval between readings of the system's clock.
const CLOCK: Duration = Duration::from_secs(1);

/// Starts all background tasks.
pub fn start(house: &Arc<House>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    vec![
        every(RESOLVE, stop, house, |house| async move { refresh(&house).await }),
        every(NOTE, stop, house, |house| async move {
            if !house.has_left() {
                let work = move || {
                    house.keyring.note_uses(&house.vault.keys);
                    figures::note(&house, Extent::Round);
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
        house.health_checks.start(house, stop),
        every(TIDY, stop, house, |house| async move { house.shelf.clear(house.clock.now()) }),
        every(buffers::IDLE, stop, house, |house| async move { house.buffers.tidy(Instant::now()) }),
        every(OLD, stop, house, |house| async move {
            if !house.has_left() {
                sweep_files(&house).await;
            }
        }),
        every(STORE, stop, house, |house| async move { watch_store(&house) }),
        every(CLOCK, stop, house, |house| async move { follow_clock(house.clock) }),
        every(EXPORT, stop, house, |house| async move { exports::due(&house).await }),
        every(MEASURE, stop, house, |house| async move {
            tokio::task::spawn_blocking(move || house.metrics.measure_disk(&house)).await.ok();
        }),
    ]
}

/// Milliseconds after which a stuck store does not recover by itself. A slow disk may take some seconds; meanwhile
/// requests continue within the limit on unwritten data.
const HOPELESS: u64 = 30_000;

/// Aborts the process if the store is stuck. Waiting would risk losing writes that the store still acknowledges; the
/// next start recovers.
fn watch_store(house: &House) {
    if let Health::Stuck { milliseconds: milliseconds @ HOPELESS.. } = house.vault.store.health() {
        let since = milliseconds.to_string();
        log::event(log::error(), "store_stuck", &[("milliseconds", &since)]);
        log::flush();
        std::process::abort();
    }
}

/// Follows the system's clock if it is set while the gateway runs: by NTP after the start, or after the machine slept.
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

/// Resolves the host name of every provider, and publishes the addresses to the pools and to the health checks.
pub async fn resolve(house: &House) {
    let live = house.live();
    look_up(live.providers.iter()).await;
    live.publish().await;
    house.health_checks.publish(house).await;
}

/// Resolves the host name of every provider again, and publishes the addresses if one has changed.
async fn refresh(house: &House) {
    let live = house.live();
    let addresses = || live.providers.iter().map(|provider| provider.route.address()).collect::<Vec<_>>();
    let before = addresses();
    look_up(live.providers.iter()).await;
    if addresses() != before {
        live.publish().await;
        house.health_checks.publish(house).await;
    }
}

/// Resolves the host names of these providers concurrently: a slow lookup delays only the requests that need it.
pub async fn look_up(providers: impl Iterator<Item = &Arc<ProviderLive>>) {
    let mut all: JoinSet<()> =
        providers.cloned().map(|provider| async move { provider.resolve().await }).collect();
    while all.join_next().await.is_some() {}
}

/// Completes when `stop` turns true, or when its sender is dropped.
async fn told(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}

/// Repeats an action until stopped.
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
