//! Background tasks: deletion of expired data, heartbeats of a fleet member, name resolution, health checks, regular
//! writes of key use, spends and latency records, backups, rollups of ended days, and checks of store and clock.

use super::{backups, usage_days};
use crate::http::buffer_pool;
use crate::state::AppState;
use crate::state::latency_records::{self, FlushScope};
use crate::storage::files::DeletionOutcome;
use crate::storage::responses::SweepRole;
use crate::time::clock::{self, ClockAdjustment, ProcessClock};
use crate::upstream::provider_state::resolve_host_names;
use parking_lot::Mutex;
use penstock_storage::StoreHealth;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Level;

/// Interval at which host names of providers are resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of writes of the last use of keys and of latency records.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of writes of spends. A crash may lose the spending of this interval from the budgets.
const SPEND_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the removal of expired images.
const IMAGE_SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the sweep of idle connections to providers.
const CONNECTION_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the deletion of expired files.
const FILE_SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which interrupted deletions of files are completed.
const DELETION_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the deletion of leftovers in the shared folder of a fleet.
const LEFTOVER_INTERVAL: Duration = Duration::from_secs(600);
/// Interval of probes of a bucket that did not answer.
const BUCKET_RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of the check whether a backup is due.
const EXPORT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the sizes of the stored data are measured.
const DISK_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the search for ended days whose usage rollups are not built yet.
const USAGE_DAYS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the health check of the store.
const STORE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Interval of the heartbeats of a fleet member.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a fleet member reads the changes of keys, unless a heartbeat has read them less than 300 ms ago.
const FEED_INTERVAL: Duration = Duration::from_millis(500);
/// Delay between the first heartbeat and the first read of changes of keys. Heartbeats read these changes too, so every
/// second read follows a heartbeat by 250 ms and is skipped.
const FEED_DELAY: Duration = Duration::from_millis(250);
/// Interval of the comparison with the system clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts all background tasks.
pub fn start(app: &Arc<AppState>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let mut tasks = start_sweeps(app, stop);
    tasks.extend(start_fleet_tasks(app, stop));
    tasks.extend(start_others(app, stop));
    tasks
}

/// Starts the deletion of stored data that has expired or was left over by a crash, and the probes of a bucket that did
/// not answer. In a fleet, only the leader deletes the data that all gateways share.
fn start_sweeps(app: &Arc<AppState>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let leftovers = app.config_snapshot().settings.files.leftovers;
    vec![
        spawn_periodic(FILE_SWEEP_INTERVAL.min(leftovers), stop, app, |app| async move {
            if !app.is_store_handed_over() {
                sweep_files(&app).await;
                if !app.stores.fleet.has_fleet() {
                    delete_expired_responses(&app).await;
                }
            }
        }),
        spawn_periodic(DELETION_INTERVAL, stop, app, {
            let logged = Arc::new(Mutex::new(DeletionProblems::default()));
            move |app| {
                let logged = logged.clone();
                async move {
                    if app.stores.fleet.is_leader() && !app.is_store_handed_over() {
                        finish_deletions(&app, &logged).await;
                    }
                }
            }
        }),
        spawn_periodic(BUCKET_RETRY_INTERVAL, stop, app, |app| async move {
            tokio::task::spawn_blocking(move || app.files.probe_bucket_if_unavailable()).await.ok();
        }),
        spawn_periodic(LEFTOVER_INTERVAL.min(leftovers), stop, app, |app| async move {
            let fleet = &app.stores.fleet;
            if fleet.has_fleet() && !app.is_store_handed_over() {
                // With a bucket, each gateway has its own local folder, which it has to sweep itself.
                if fleet.is_leader() || app.files.bucket().is_some() {
                    delete_old_leftovers(&app).await;
                }
                if fleet.is_leader() {
                    delete_shared_images(&app).await;
                }
            }
            if fleet.has_fleet() && !app.is_store_handed_over() {
                delete_expired_responses(&app).await;
            }
        }),
    ]
}

/// Starts the heartbeats of a fleet member, and the reads of key changes between these heartbeats.
fn start_fleet_tasks(app: &Arc<AppState>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    vec![
        spawn_periodic(BEAT_INTERVAL, stop, app, |app| async move {
            if app.stores.fleet.has_fleet() {
                tokio::task::spawn_blocking(move || app.run_heartbeat_round()).await.ok();
            }
        }),
        spawn_delayed(FEED_DELAY, FEED_INTERVAL, stop, app, |app| async move {
            if app.stores.fleet.has_fleet() {
                tokio::task::spawn_blocking(move || app.apply_peer_changes()).await.ok();
            }
        }),
    ]
}

fn start_others(app: &Arc<AppState>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    vec![
        spawn_periodic(RESOLVE_INTERVAL, stop, app, |app| async move { resolve_changed(&app).await }),
        spawn_periodic(FLUSH_INTERVAL, stop, app, |app| async move {
            if !app.is_store_handed_over() {
                let work = move || {
                    app.key_cache.flush_last_uses(&app.stores.keys);
                    latency_records::flush_latency_records(&app, FlushScope::Round);
                };
                tokio::task::spawn_blocking(work).await.ok();
            }
        }),
        spawn_periodic(SPEND_INTERVAL, stop, app, |app| async move {
            // A process that drains after a handover does not write spends: the process that has the store counts its
            // charges. A fleet member writes its spends with its heartbeats.
            let work = move || {
                if !app.stores.fleet.has_fleet() {
                    app.flush_spends();
                }
                app.drop_retired_snapshots();
            };
            tokio::task::spawn_blocking(work).await.ok();
        }),
        spawn_periodic(CONNECTION_SWEEP_INTERVAL, stop, app, |app| async move {
            tokio::task::spawn_blocking(move || app.connection_pools.prune_idle_connections()).await.ok();
        }),
        app.health_checks.start(app.health_context(), stop),
        spawn_periodic(IMAGE_SWEEP_INTERVAL, stop, app, |app| async move {
            app.image_cache.remove_expired(app.clock.steady_now())
        }),
        spawn_periodic(buffer_pool::MAX_IDLE_TIME, stop, app, |app| async move {
            app.buffer_pool.drop_idle(Instant::now())
        }),
        spawn_periodic(STORE_CHECK_INTERVAL, stop, app, {
            let is_logged = Arc::new(AtomicBool::new(false));
            move |app| {
                let is_logged = is_logged.clone();
                async move { log_store_outage(&app, &is_logged) }
            }
        }),
        spawn_periodic(CLOCK_INTERVAL, stop, app, |app| async move { follow_clock(app.clock) }),
        spawn_periodic(
            EXPORT_CHECK_INTERVAL,
            stop,
            app,
            |app| async move { backups::export_if_due(&app).await },
        ),
        spawn_periodic(DISK_INTERVAL, stop, app, |app| async move {
            tokio::task::spawn_blocking(move || app.measure_disk_usage()).await.ok();
        }),
        spawn_periodic(USAGE_DAYS_INTERVAL, stop, app, {
            let is_logged = Arc::new(AtomicBool::new(false));
            move |app| {
                let is_logged = is_logged.clone();
                async move { usage_days::build_ended_days(&app, &is_logged).await }
            }
        }),
    ]
}

/// Milliseconds after which a stuck or unreachable store is logged. A slow disk may take some seconds.
const STUCK_MILLIS: u64 = 30_000;

/// Logs once that the store is stuck or unreachable, and once that the store answers again. The process is not ended:
/// it still serves requests within the limit of unwritten charges, and its end would lose the charges in memory.
fn log_store_outage(app: &AppState, is_logged: &AtomicBool) {
    let is_due = |milliseconds| milliseconds >= STUCK_MILLIS && !is_logged.swap(true, Ordering::Relaxed);
    match app.stores.store.health() {
        StoreHealth::Stuck { milliseconds } if is_due(milliseconds) => {
            tracing::error!(name: "store_write_hung", %milliseconds);
        }
        StoreHealth::Unreachable { milliseconds } if is_due(milliseconds) => {
            tracing::error!(name: "database_unreachable", %milliseconds);
        }
        StoreHealth::Ready if is_logged.swap(false, Ordering::Relaxed) => {
            tracing::event!(name: "store_recovered", Level::INFO, {});
        }
        _ => {}
    }
}

/// Adjusts the calendar clock after the system clock was set forward: by NTP after the start, or after the machine
/// slept.
fn follow_clock(clock: ProcessClock) {
    match clock.follow_system_clock(clock::system_time()) {
        ClockAdjustment::Unchanged => {}
        ClockAdjustment::Moved(by) => tracing::warn!(name: "clock_jumped_forward", seconds = %by.as_secs()),
        ClockAdjustment::Waiting(by) => tracing::warn!(name: "clock_ahead", seconds = %by.as_secs()),
    }
}

/// Deletes expired files, in a fleet only on the leader, and leftovers in the bucket of file contents.
async fn sweep_files(app: &Arc<AppState>) {
    if app.stores.fleet.is_leader() {
        delete_expired_files(app).await;
    }
    sweep_bucket(app).await;
}

/// Deletes expired files.
async fn delete_expired_files(app: &AppState) {
    let (files, at) = (app.files.clone(), app.file_expiry_context());
    let swept = tokio::task::spawn_blocking(move || files.delete_expired(at)).await;
    match swept {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(swept)) => tracing::info!(name: "files_expired", files = %swept),
        Ok(Err(error)) => tracing::error!(name: "files_not_swept", why = %error),
    }
}

/// Problems of the last pass over deleted files.
#[derive(Clone, Copy, Default)]
struct DeletionProblems {
    has_failed: bool,
    /// Number of records that cannot be read.
    unreadable: u64,
}

/// Retries interrupted deletions of file contents. A failure is logged once, until a pass succeeds. Records of
/// deletions that cannot be read are logged again only if their number grows.
async fn finish_deletions(app: &AppState, logged: &Mutex<DeletionProblems>) {
    let files = app.files.clone();
    let Ok(passed) = tokio::task::spawn_blocking(move || files.finish_interrupted_deletions()).await else {
        return;
    };
    let outcome = match passed {
        Ok(outcome) => outcome,
        Err(error) => DeletionOutcome { first_error: Some(error.into()), ..DeletionOutcome::default() },
    };
    if outcome.finished > 0 {
        tracing::info!(name: "deletions_finished", files = %outcome.finished);
    }
    let problems =
        DeletionProblems { has_failed: outcome.first_error.is_some(), unreadable: outcome.unreadable };
    let logged = std::mem::replace(&mut *logged.lock(), problems);
    if problems.has_failed && !logged.has_failed || problems.unreadable > logged.unreadable {
        let cause = outcome.first_error.map_or_else(
            || "records of deletions cannot be read, such as those of a newer version".to_owned(),
            |error| error.to_string(),
        );
        let why = format!(
            "{cause}. The contents use space until they are removed, which is tried again each ten seconds: check the \
             folder `files.path`, or the bucket"
        );
        let (files, unreadable) = (outcome.failed, outcome.unreadable);
        tracing::warn!(name: "deletions_not_finished", %files, %unreadable, why);
    }
}

/// Deletes leftovers in the bucket of file contents, once per `files.leftovers`; in a fleet, only one gateway does
/// this.
async fn sweep_bucket(app: &Arc<AppState>) {
    let (state, age) = (app.clone(), app.config_snapshot().settings.files.leftovers);
    let swept = tokio::task::spawn_blocking(move || {
        let is_ready = state.stores.store.health() == StoreHealth::Ready;
        let due = state.files.bucket().filter(|bucket| {
            bucket.claim_due_sweep(state.clock.steady_now(), age, is_ready, state.stores.fleet.is_leader())
        });
        due.map(|bucket| bucket.sweep(state.files.file_record_store(), age))
    });
    let Ok(Some(outcome)) = swept.await else { return };
    if outcome.swept > 0 {
        tracing::info!(name: "bucket_swept", leftovers = %outcome.swept);
    }
    if let Some(error) = outcome.first_error {
        tracing::warn!(name: "bucket_not_swept", why = %error);
    }
}

/// Deletes contents that belong to no file record of the fleet and are older than `files.leftovers`.
async fn delete_old_leftovers(app: &AppState) {
    let (files, age) = (app.files.clone(), app.config_snapshot().settings.files.leftovers);
    let swept = tokio::task::spawn_blocking(move || files.delete_old_leftovers(age)).await;
    if let Ok(Err(error)) = swept {
        tracing::error!(name: "files_not_swept", why = %error);
    }
}

/// Deletes generated images of the fleet that have expired.
async fn delete_shared_images(app: &AppState) {
    let Some(images) = app.image_cache.shared_images().cloned() else { return };
    let lifetime = app.config_snapshot().settings.images.lifetime;
    let swept = tokio::task::spawn_blocking(move || images.sweep(lifetime)).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(name: "images_not_swept", why = %error.kind());
    }
}

/// Deletes expired responses, and those beyond the limits, on one gateway of a fleet. The other gateways only count the
/// remaining responses.
async fn delete_expired_responses(app: &Arc<AppState>) {
    let (state, now, limits) = (app.clone(), app.clock.unix_seconds(), app.stored_response_limits());
    let fleet = &app.stores.fleet;
    let role = if !fleet.has_fleet() || fleet.is_leader() { SweepRole::Remover } else { SweepRole::Counter };
    let swept = tokio::task::spawn_blocking(move || state.responses.sweep(now, limits.settings, role)).await;
    if let Ok(Err(error)) = swept {
        tracing::error!(name: "responses_not_swept", why = %error);
    }
}

/// Resolves the names of all providers, and publishes the addresses to the pools and health checks.
pub async fn resolve_providers(app: &AppState) {
    let live = app.config_snapshot();
    resolve_host_names(live.providers.iter()).await;
    live.publish_pools().await;
    app.health_checks.publish_providers(&live).await;
}

/// Resolves the names of all providers again, and publishes the addresses if one has changed.
async fn resolve_changed(app: &AppState) {
    let live = app.config_snapshot();
    let addresses =
        || live.providers.iter().map(|provider| provider.route.first_address()).collect::<Vec<_>>();
    let before = addresses();
    resolve_host_names(live.providers.iter()).await;
    if addresses() != before {
        live.publish_pools().await;
        app.health_checks.publish_providers(&live).await;
    }
}

/// Waits for the stop signal, or for the end of its sender.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    stop.wait_for(|stop| *stop).await.ok();
}

/// Runs a task now and at an interval until the stop signal.
fn spawn_periodic<F>(
    pause: Duration,
    stop: &watch::Receiver<bool>,
    app: &Arc<AppState>,
    work: impl Fn(Arc<AppState>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    spawn_delayed(Duration::ZERO, pause, stop, app, work)
}

/// Runs a task after a delay and then at an interval until the stop signal.
fn spawn_delayed<F>(
    delay: Duration,
    pause: Duration,
    stop: &watch::Receiver<bool>,
    app: &Arc<AppState>,
    work: impl Fn(Arc<AppState>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut stop, app) = (stop.clone(), app.clone());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + delay, pause);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => work(app.clone()).await,
                () = stop_requested(&mut stop) => return,
            }
        }
    })
}
