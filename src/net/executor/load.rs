//! What a thread has to do: how many connections, for what share of its time it is busy, and how many may leave it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// How often a thread that has connections looks at the time, and at its load. Whoever sets an alarm that is earlier
/// than all others of its thread pays for a system call; none of a request's alarms is earlier than this.
const TICK: Duration = Duration::from_millis(100);
/// All of a thread's time: shares of it are thousandths.
const WHOLE: u32 = 1_000;
/// The share of its time for which a thread may be busy and still be given connections before another.
const EASY: u32 = 500;
/// Busy for more than this, it lets connections go …
const CROWDED: u32 = 850;
/// … to one that is busy for so much less.
const APART: u32 = 300;
/// Connections that a thread may have more than another while it is not busy. They may all be busy at once later, and
/// a connection leaves only between two requests.
const FEW: usize = 64;
/// Of its connections a crowded thread lets one of so many go in a tick.
const SHARE: usize = 8;

/// A thread, as others see it.
pub(super) struct Worker {
    pub(super) handle: Handle,
    pub(super) load: Load,
}

/// All of them.
pub(super) type Workers = Arc<[Worker]>;

#[derive(Default)]
pub(super) struct Load {
    /// Connections.
    pub(super) open: AtomicUsize,
    first: Notify,
    /// Its share of the last tick.
    pub(super) busy: AtomicU32,
    /// Connections that may still leave in this tick.
    leave: AtomicUsize,
}

impl Load {
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Whether there is a connection left to let go.
    fn let_go(&self) -> bool {
        // Hardly ever more than a look.
        self.leave.load(Ordering::Relaxed) > 0
            && self
                .leave
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }

    /// What it is told at the end of a tick: its share, and that of the calmest other thread.
    pub(super) fn measured(&self, busy: u32, calmest: u32) {
        self.busy.store(busy, Ordering::Relaxed);
        // One alone would be as crowded elsewhere.
        let crowded = busy > CROWDED && calmest + APART <= busy && self.open() > 1;
        self.leave.store(if crowded { (self.open() / SHARE).max(1) } else { 0 }, Ordering::Relaxed);
    }
}

/// The thread that has the fewest connections.
pub(super) fn emptiest(workers: &[Worker]) -> usize {
    let all = workers.iter().enumerate();
    all.min_by_key(|(_, worker)| (worker.load.open(), worker.load.busy())).map_or(0, |(place, _)| place)
}

/// Where one of the connections of a thread goes on instead, if it may leave.
pub(super) fn leave(workers: &[Worker], own: usize) -> Option<usize> {
    let load = workers.get(own).map(|worker| &worker.load).filter(|load| load.let_go())?;
    let others = workers.iter().enumerate().filter(|(place, _)| *place != own);
    let (to, calm) = others.min_by_key(|(_, worker)| (worker.load.busy(), worker.load.open()))?;
    // Others may have gone there since it was measured: what each brings counts at once.
    if calm.load.busy() + APART > load.busy() {
        return None;
    }
    let brings = load.busy() / u32::try_from(load.open().max(1)).unwrap_or(u32::MAX);
    calm.load.busy.fetch_add(brings, Ordering::Relaxed);
    Some(to)
}

/// The first thread that has time, as long as it has few more connections than others; else the emptiest.
pub(super) fn first_with_time(workers: &[Worker]) -> usize {
    let least = workers.iter().map(|worker| worker.load.open()).min().unwrap_or_default();
    let has_time = |worker: &Worker| worker.load.busy() < EASY && worker.load.open() < least + FEW;
    workers.iter().position(has_time).unwrap_or_else(|| emptiest(workers))
}

/// Measures a thread's load on itself, each tick while it has connections; never ends.
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

/// One connection of a thread.
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
