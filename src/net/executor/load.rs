//! Load of a worker thread: its connections, the share of time in which it is busy, and the number of connections that
//! may still migrate to other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Interval at which a thread with connections measures its load. Setting a timer that is earlier than all other timers
/// of its thread costs a system call; timers of requests are rarely earlier than this one.
const TICK: Duration = Duration::from_millis(100);
/// Busy share of a fully busy thread: shares are in thousandths.
const FULL_SHARE: u32 = 1_000;
/// Busy share up to which a thread is preferred for new connections.
const MAX_EASY_SHARE: u32 = 500;
/// Busy share beyond which a thread releases connections.
const OVERLOADED_SHARE: u32 = 850;
/// Minimum by which the receiving thread must be less busy than the thread that releases connections, in thousandths.
const MIN_SHARE_GAP: u32 = 300;
/// Limit on the number of connections by which a thread that is not busy may exceed the thread with the fewest
/// connections, and still get new ones. All of these connections may become busy later, and a connection can migrate
/// only between two requests.
const MAX_CONNECTION_GAP: usize = 64;
/// Divisor of the connections that an overloaded thread releases per tick.
const MIGRATION_DIVISOR: usize = 8;

/// Worker thread as seen by the others.
pub(super) struct WorkerThread {
    pub(super) handle: Handle,
    pub(super) load: WorkerLoad,
}

/// All worker threads.
pub(super) type WorkerSet = Arc<[WorkerThread]>;

/// Load of one worker thread, which all threads read.
#[derive(Default)]
pub(super) struct WorkerLoad {
    /// Number of open connections of the thread.
    pub(super) connections: AtomicUsize,
    first_connection: Notify,
    /// Share of the last tick in which the thread was busy, in thousandths.
    pub(super) busy_share: AtomicU32,
    /// Number of connections that may still migrate in this tick.
    migrations_left: AtomicUsize,
}

impl WorkerLoad {
    /// Returns the number of open connections of the thread.
    pub(super) fn open_connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    fn busy(&self) -> u32 {
        self.busy_share.load(Ordering::Relaxed)
    }

    /// Takes one of the migrations of this tick; returns false if none is left.
    fn take_migration(&self) -> bool {
        // The plain load comes before the atomic update, because usually no migration is left and the update is not
        // needed.
        self.migrations_left.load(Ordering::Relaxed) > 0
            && self
                .migrations_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }

    /// Records the busy share of a tick, and sets the number of connections that may migrate until the next tick.
    /// `calmest` is the busy share of the least busy other thread.
    pub(super) fn record_busy_share(&self, busy: u32, calmest: u32) {
        self.busy_share.store(busy, Ordering::Relaxed);
        // A thread with a single connection is never overloaded: the connection would overload another thread as much.
        let crowded =
            busy > OVERLOADED_SHARE && calmest + MIN_SHARE_GAP <= busy && self.open_connections() > 1;
        self.migrations_left.store(
            if crowded { (self.open_connections() / MIGRATION_DIVISOR).max(1) } else { 0 },
            Ordering::Relaxed,
        );
    }
}

/// Returns the index of the thread with the fewest connections.
pub(super) fn least_connected_worker(workers: &[WorkerThread]) -> usize {
    let all = workers.iter().enumerate();
    all.min_by_key(|(_, worker)| (worker.load.open_connections(), worker.load.busy()))
        .map_or(0, |(index, _)| index)
}

/// Returns the index of the thread to which a connection of the thread `own` should migrate; `None` if it should stay.
/// Uses up one migration of the tick.
pub(super) fn claim_migration_target(workers: &[WorkerThread], own: usize) -> Option<usize> {
    let load = workers.get(own).map(|worker| &worker.load).filter(|load| load.take_migration())?;
    let others = workers.iter().enumerate().filter(|(index, _)| *index != own);
    let (to, calm) = others.min_by_key(|(_, worker)| (worker.load.busy(), worker.load.open_connections()))?;
    // The busy share of the target includes the connections that have migrated to it since the last measurement.
    if calm.load.busy() + MIN_SHARE_GAP > load.busy() {
        return None;
    }
    let added_share = load.busy() / u32::try_from(load.open_connections().max(1)).unwrap_or(u32::MAX);
    calm.load.busy_share.fetch_add(added_share, Ordering::Relaxed);
    Some(to)
}

/// Returns the index of the first thread that is less than half busy and does not have many more connections than the
/// others; if there is none, the thread with the fewest connections.
pub(super) fn first_available_worker(workers: &[WorkerThread]) -> usize {
    let least = workers.iter().map(|worker| worker.load.open_connections()).min().unwrap_or_default();
    let has_time = |worker: &WorkerThread| {
        worker.load.busy() < MAX_EASY_SHARE && worker.load.open_connections() < least + MAX_CONNECTION_GAP
    };
    workers.iter().position(has_time).unwrap_or_else(|| least_connected_worker(workers))
}

/// Measures the load of the current thread at each tick while the thread has connections; never ends.
pub(super) async fn run_load_measurement(workers: WorkerSet, own: usize) {
    let Some(WorkerThread { handle, load }) = workers.get(own) else { return };
    let metrics = handle.metrics();
    let look = || (Instant::now(), metrics.worker_total_busy_duration(0));
    let mut before = look();
    loop {
        if load.open_connections() == 0 {
            load.record_busy_share(0, 0);
            load.first_connection.notified().await;
            before = look();
            continue;
        }
        tokio::time::sleep(TICK).await;
        let now = look();
        let (time, busy) = (now.0.duration_since(before.0), now.1.saturating_sub(before.1));
        before = now;
        let share = u32::try_from(busy.as_micros() * u128::from(FULL_SHARE) / time.as_micros().max(1))
            .unwrap_or(FULL_SHARE)
            .min(FULL_SHARE);
        let others = workers.iter().enumerate().filter(|(index, _)| *index != own);
        let calmest = others.map(|(_, worker)| worker.load.busy()).min().unwrap_or(FULL_SHARE);
        load.record_busy_share(share, calmest);
    }
}

/// Guard that counts one connection of a thread until dropped.
pub(super) struct ConnectionGuard {
    pub(super) workers: WorkerSet,
    pub(super) at: usize,
}

impl ConnectionGuard {
    /// Counts a connection of the thread with the index `worker_index`.
    pub(super) fn new(workers: &WorkerSet, worker_index: usize) -> Self {
        if let Some(worker) = workers.get(worker_index)
            && worker.load.connections.fetch_add(1, Ordering::Relaxed) == 0
        {
            worker.load.first_connection.notify_one();
        }
        Self { workers: workers.clone(), at: worker_index }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        if let Some(worker) = self.workers.get(self.at) {
            worker.load.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
