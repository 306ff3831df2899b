//! Load of a thread: its connections, its busy share of time, and the number of connections that may leave it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Interval at which a thread with connections measures its load. A timer that is earlier than all others of its thread
/// costs a system call; no timer of a request is earlier than this one.
const TICK: Duration = Duration::from_millis(100);
/// Full time of a thread: shares are in thousandths.
const WHOLE: u32 = 1_000;
/// Busy share up to which a thread is preferred for new connections.
const EASY: u32 = 500;
/// Busy share beyond which a thread releases connections …
const CROWDED: u32 = 850;
/// … to a thread whose busy share is lower by this much.
const APART: u32 = 300;
/// Connections that a thread may have beyond the others while it is not busy. All of them may become busy later, and a
/// connection leaves only between two requests.
const FEW: usize = 64;
/// Divisor of the connections that a crowded thread releases per tick.
const SHARE: usize = 8;

/// Thread as seen by the others.
pub(super) struct Worker {
    pub(super) handle: Handle,
    pub(super) load: Load,
}

/// All threads.
pub(super) type Workers = Arc<[Worker]>;

#[derive(Default)]
pub(super) struct Load {
    /// Open connections.
    pub(super) open: AtomicUsize,
    first: Notify,
    /// Busy share of the last tick.
    pub(super) busy: AtomicU32,
    /// Number of connections that may still move away in this tick.
    leave: AtomicUsize,
}

impl Load {
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Takes one release if there is one left.
    fn let_go(&self) -> bool {
        // Usually one load.
        self.leave.load(Ordering::Relaxed) > 0
            && self
                .leave
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }

    /// Records a tick: the busy share of the thread, and that of the calmest other thread.
    pub(super) fn measured(&self, busy: u32, calmest: u32) {
        self.busy.store(busy, Ordering::Relaxed);
        // A single connection would make the other thread just as crowded.
        let crowded = busy > CROWDED && calmest + APART <= busy && self.open() > 1;
        self.leave.store(if crowded { (self.open() / SHARE).max(1) } else { 0 }, Ordering::Relaxed);
    }
}

/// Returns the thread with the fewest connections.
pub(super) fn emptiest(workers: &[Worker]) -> usize {
    let all = workers.iter().enumerate();
    all.min_by_key(|(_, worker)| (worker.load.open(), worker.load.busy())).map_or(0, |(place, _)| place)
}

/// Returns the thread to which a connection of `from` should move, if it may leave.
pub(super) fn leave(workers: &[Worker], own: usize) -> Option<usize> {
    let load = workers.get(own).map(|worker| &worker.load).filter(|load| load.let_go())?;
    let others = workers.iter().enumerate().filter(|(place, _)| *place != own);
    let (to, calm) = others.min_by_key(|(_, worker)| (worker.load.busy(), worker.load.open()))?;
    // Connections may have moved there since the measurement: each counts at once.
    if calm.load.busy() + APART > load.busy() {
        return None;
    }
    let brings = load.busy() / u32::try_from(load.open().max(1)).unwrap_or(u32::MAX);
    calm.load.busy.fetch_add(brings, Ordering::Relaxed);
    Some(to)
}

/// Returns the first thread with spare time and few more connections than the others, else the one with the fewest.
pub(super) fn first_with_time(workers: &[Worker]) -> usize {
    let least = workers.iter().map(|worker| worker.load.open()).min().unwrap_or_default();
    let has_time = |worker: &Worker| worker.load.busy() < EASY && worker.load.open() < least + FEW;
    workers.iter().position(has_time).unwrap_or_else(|| emptiest(workers))
}

/// Measures the load of the current thread, each tick while it has connections; never ends.
pub(super) async fn watch(workers: Workers, own: usize) {
    let Some(Worker { handle, load }) = workers.get(own) else { return };
    let metrics = handle.metrics();
    let look = || (Instant::now(), metrics.worker_total_busy_duration(0));
    let mut before = look();
    loop {
        if load.open() == 0 {
            load.measured(0, 0);
            load.first.notified().await;
            before = look();
            continue;
        }
        tokio::time::sleep(TICK).await;
        let now = look();
        let (time, busy) = (now.0.duration_since(before.0), now.1.saturating_sub(before.1));
        before = now;
        let share = u32::try_from(busy.as_micros() * u128::from(WHOLE) / time.as_micros().max(1))
            .unwrap_or(WHOLE)
            .min(WHOLE);
        let others = workers.iter().enumerate().filter(|(place, _)| *place != own);
        let calmest = others.map(|(_, worker)| worker.load.busy()).min().unwrap_or(WHOLE);
        load.measured(share, calmest);
    }
}

/// Counts one connection of a thread.
pub(super) struct Counted {
    pub(super) workers: Workers,
    pub(super) at: usize,
}

impl Counted {
    pub(super) fn new(workers: &Workers, at: usize) -> Self {
        if let Some(worker) = workers.get(at)
            && worker.load.open.fetch_add(1, Ordering::Relaxed) == 0
        {
            worker.load.first.notify_one();
        }
        Self { workers: workers.clone(), at }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(worker) = self.workers.get(self.at) {
            worker.load.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
