//! Between the requests and the one thread that writes: pushes never wait for
//! the disk.

use super::op::Op;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long what somebody waits for still waits for others.
const HURRY: Duration = Duration::from_millis(5);

/// So many are written at once, however short their wait was: with what comes during the write, it is as much as a
/// crash forgets.
const FULL: usize = 4_096;

/// So many are taken as they come, to be written with the others later: made ready all at once they would take the
/// requests' processors for milliseconds.
const PIECE: usize = 256;

/// What is taken at a time.
pub(super) struct Piece {
    /// None if a group ends without more, or if nothing came for long.
    pub(super) ops: Vec<Op>,
    /// The number of the last op that was taken.
    pub(super) last: u64,
    /// The group is to be written now.
    pub(super) whole: bool,
}

#[derive(Default)]
struct Waiting {
    ops: Vec<Op>,
    /// When the group in the making is written at the latest, and how many were taken for it.
    until: Option<Instant>,
    taken: usize,
    /// Pushed so far.
    pushed: u64,
    /// The writer sleeps until somebody wakes it.
    idle: bool,
    /// It waits for company for what is there or was taken.
    gathering: bool,
    /// Somebody waits for what was pushed.
    hurried: bool,
    closing: bool,
    /// The writer leaves what waits to another.
    handing: bool,
}

impl Waiting {
    /// What was just pushed completes a piece, or the group.
    const fn is_enough(&self) -> bool {
        self.ops.len() == PIECE || self.taken + self.ops.len() == FULL
    }
}

/// What waits to be written.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    written: watch::Sender<u64>,
    /// Nothing is written any more.
    over: AtomicBool,
    window_us: AtomicU64,
    bytes: AtomicU64,
    exposed: AtomicI64,
    failing: AtomicBool,
    behind: AtomicBool,
    origin: Instant,
    /// Milliseconds after the origin, plus one, since when the writer is at its group; 0: it is not.
    busy_since: AtomicU64,
    open: AtomicU64,
    entries: AtomicU64,
}

impl Queue {
    pub(super) fn new(window: Duration, entries: u64) -> Self {
        let queue = Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            written: watch::Sender::new(0),
            over: AtomicBool::new(false),
            window_us: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            exposed: AtomicI64::new(0),
            failing: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            origin: Instant::now(),
            busy_since: AtomicU64::new(0),
            open: AtomicU64::new(0),
            entries: AtomicU64::new(entries),
        };
        queue.wait_for(window);
        queue
    }

    /// How long the writer collects what nobody waits for.
    pub(super) fn wait_for(&self, window: Duration) {
        let micros = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        self.window_us.store(micros, Ordering::Relaxed);
    }

    /// Hands an op to the writer; returns its number.
    pub(super) fn push(&self, op: Op) -> u64 {
        self.bytes.fetch_add(op.bytes(), Ordering::Relaxed);
        // Who orders waits for the answer.
        let ordered = matches!(op, Op::Order(_));
        let mut waiting = self.waiting.lock();
        waiting.ops.push(op);
        waiting.pushed += 1;
        waiting.hurried |= ordered;
        let (number, wake) = (waiting.pushed, waiting.idle || ordered || waiting.is_enough());
        waiting.idle = false;
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
        number
    }

    /// The next ops, at most `most`; none if a group that was begun ends without more, or if nothing comes for as long
    /// as `patience`; `None` when it is over.
    pub(super) fn collect(&self, most: usize, patience: Option<Duration>) -> Option<Piece> {
        let mut waiting = self.waiting.lock();
        while waiting.until.is_none() && (waiting.ops.is_empty() || waiting.handing) {
            if waiting.closing || waiting.handing {
                return None;
            }
            waiting.idle = true;
            let over = match patience {
                None => {
                    self.wake.wait(&mut waiting);
                    false
                }
                Some(patience) => self.wake.wait_for(&mut waiting, patience).timed_out(),
            };
            waiting.idle = false;
            if over && waiting.ops.is_empty() {
                return Some(Piece { ops: Vec::new(), last: waiting.pushed, whole: true });
            }
        }
        let over = self.gather(&mut waiting);
        let most = most.min(FULL - waiting.taken);
        let left = waiting.ops.len().saturating_sub(most);
        let ops = if left == 0 {
            std::mem::take(&mut waiting.ops)
        } else {
            let rest = waiting.ops.split_off(most);
            std::mem::replace(&mut waiting.ops, rest)
        };
        waiting.taken += ops.len();
        let whole = over || waiting.taken >= FULL;
        if whole {
            (waiting.until, waiting.taken) = (None, 0);
            // Who waits may wait for what is left over.
            waiting.hurried &= left > 0;
        }
        Some(Piece { ops, last: waiting.pushed - left as u64, whole })
    }

    /// Waits for others that the same write can serve: until they are a piece, the group is [`FULL`] or its time is
    /// over, which is [`HURRY`] from when somebody waits. Whether it is over.
    fn gather(&self, waiting: &mut MutexGuard<'_, Waiting>) -> bool {
        let window = Duration::from_micros(self.window_us.load(Ordering::Relaxed));
        let mut until = waiting.until.unwrap_or_else(|| Instant::now() + window);
        let mut hurried = false;
        while !waiting.closing && !waiting.handing && waiting.taken + waiting.ops.len() < FULL {
            if waiting.hurried && !hurried {
                hurried = true;
                until = until.min(Instant::now() + HURRY);
            }
            waiting.until = Some(until);
            if waiting.ops.len() >= PIECE {
                return until <= Instant::now();
            }
            waiting.gathering = true;
            let over = self.wake.wait_until(waiting, until).timed_out();
            waiting.gathering = false;
            if over {
                return true;
            }
        }
        true
    }

    /// Somebody waits for what was pushed.
    fn hurry(&self) {
        let mut waiting = self.waiting.lock();
        let news = !std::mem::replace(&mut waiting.hurried, true) && waiting.gathering;
        drop(waiting);
        if news {
            self.wake.notify_one();
        }
    }

    /// Waits a moment before the next try; false when it is over.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.closing {
            self.wake.wait_for(&mut waiting, pause);
        }
        !waiting.closing
    }

    pub(super) fn close(&self) {
        self.waiting.lock().closing = true;
        self.wake.notify_all();
    }

    /// The writer ends with the group at work, or another may begin.
    pub(super) fn hand_over(&self, handing: bool) {
        self.waiting.lock().handing = handing;
        self.wake.notify_all();
    }

    /// How many were taken for a group whose writer waits for more.
    #[cfg(test)]
    pub(super) fn waits_with(&self) -> Option<usize> {
        let waiting = self.waiting.lock();
        waiting.gathering.then_some(waiting.taken)
    }

    /// The number of the last op that was pushed.
    pub(super) fn pushed(&self) -> u64 {
        self.waiting.lock().pushed
    }

    /// The writer has begun a group, or ended it.
    pub(super) fn at_work(&self, works: bool) {
        let since = if works { self.now() } else { 0 };
        self.busy_since.store(since, Ordering::Release);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// How long the writer has been at its group.
    pub(super) fn busy(&self) -> Duration {
        match self.busy_since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.now().saturating_sub(since)),
        }
    }

    /// A group could not be written.
    pub(super) fn failed(&self) {
        self.failing.store(true, Ordering::Release);
    }

    /// A group is on the disk.
    pub(super) fn kept(&self, done: &Kept) {
        self.bytes.fetch_sub(done.bytes, Ordering::Relaxed);
        self.expose(-done.exposed);
        self.failing.store(false, Ordering::Release);
        self.behind.store(!done.copied, Ordering::Release);
        self.open.store(done.open, Ordering::Release);
        self.entries.store(done.entries, Ordering::Release);
    }

    /// Whether the second copy is up to the store.
    pub(super) fn copied_now(&self, copied: bool) {
        self.behind.store(!copied, Ordering::Release);
    }

    /// Everything up to this number is on the disk.
    pub(super) fn reached(&self, number: u64) {
        self.written.send_replace(number);
    }

    pub(super) async fn written(&self, ticket: u64) {
        self.hurry();
        self.written.subscribe().wait_for(|reached| *reached >= ticket).await.ok();
    }

    /// The same for as long as it takes; false if the writer has ended without it.
    pub(super) async fn kept_up_to(&self, ticket: u64) -> bool {
        self.hurry();
        let over = || self.over.load(Ordering::Acquire);
        let mut written = self.written.subscribe();
        let reached = written.wait_for(|reached| *reached >= ticket || over()).await;
        reached.is_ok_and(|reached| *reached >= ticket)
    }

    /// The writer has ended, and no other takes its place.
    pub(super) fn over(&self) {
        if self.waiting.lock().handing {
            return;
        }
        self.over.store(true, Ordering::Release);
        self.written.send_modify(|_| {});
    }

    pub(super) fn expose(&self, change: i64) {
        self.exposed.fetch_add(change, Ordering::AcqRel);
    }

    pub(super) fn exposed(&self) -> i64 {
        self.exposed.load(Ordering::Acquire)
    }

    pub(super) fn waiting(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub(super) fn copied(&self) -> bool {
        !self.behind.load(Ordering::Acquire)
    }

    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Acquire)
    }
}

/// What a group that is on the disk changes.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) bytes: u64,
    pub(super) exposed: i64,
    pub(super) copied: bool,
    pub(super) open: u64,
    pub(super) entries: u64,
}
