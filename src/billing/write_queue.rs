//! Write queue between the requests and the writer thread: a push never waits for the disk.

use super::write_op::{LedgerAction, WriteOp};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Longest time for which operations are collected before a write if a caller waits for one of them.
const WAITER_COLLECT_TIME: Duration = Duration::from_millis(5);

/// Number of operations at which a group is written immediately. A crash loses at most these operations and those that
/// arrive during the write.
pub(super) const MAX_GROUP_OPERATIONS: usize = 4_096;

/// Number of operations that the writer prepares at a time while it collects a group. Preparing all operations of a
/// group at once would keep the processors of the request threads busy for milliseconds.
const PIECE_OPERATIONS: usize = 256;

/// Operations that the writer takes from the queue in one call.
pub(super) struct DrainedOps {
    /// Operations. There are none if the group ends without further operations, or if nothing arrived for a long time.
    pub(super) ops: Vec<WriteOp>,
    /// Number of the last operation that was taken.
    pub(super) last: u64,
    /// True if the group has to be written now.
    pub(super) is_complete: bool,
}

#[derive(Default)]
struct QueueState {
    ops: Vec<WriteOp>,
    /// Latest time at which the current group has to be written; `None` without a current group.
    until: Option<Instant>,
    /// Number of operations that were taken for the current group.
    taken: usize,
    /// Number of operations pushed so far.
    pushed: u64,
    /// True if the thread that takes operations sleeps until it is notified.
    idle: bool,
    /// True if the writer waits for more operations before it writes.
    gathering: bool,
    /// True if a caller waits for the write.
    has_waiter: bool,
    closing: bool,
    /// True if the writer leaves the queue to another process.
    handing_over: bool,
}

impl QueueState {
    /// Returns true if the last push completes a piece or the group.
    const fn is_ready(&self) -> bool {
        self.ops.len() == PIECE_OPERATIONS || self.taken + self.ops.len() == MAX_GROUP_OPERATIONS
    }
}

/// State of the writes of the ledger to the store.
#[derive(Clone, Copy)]
#[repr(u8)]
enum WriteHealth {
    /// The last write succeeded.
    Writing,
    /// The last write failed, and is tried again.
    Failing,
    /// This process may not write any more, for example because other gateways declared it dead.
    Fenced,
}

/// Write queue of the ledger.
pub(super) struct WriteQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Condition variable that ends the pause of the writer before a retry. It is separate from `wake`, because
    /// another thread may take the operations, and waits for `wake`.
    pause_end: Condvar,
    /// Number of the last operation that is on the disk.
    written: watch::Sender<u64>,
    /// True if nothing will be written any more.
    is_finished: AtomicBool,
    /// Time for which operations are collected if no caller waits for them, in microseconds.
    collect_time_us: AtomicU64,
    /// Approximate size of the operations that are not on the disk, in bytes.
    bytes: AtomicU64,
    /// Amount of open reservations and unwritten charges, in 1e-8 EUR.
    exposed: AtomicI64,
    /// State of the writes to the store, a [`WriteHealth`] as a number.
    health: AtomicU8,
    replica_behind: AtomicBool,
    origin: Instant,
    /// Start of the current write in milliseconds after `origin`, plus one; 0 if there is none.
    busy_since: AtomicU64,
    open: AtomicU64,
    chain_entries: AtomicU64,
}

impl WriteQueue {
    /// Creates an empty queue. `collect_time` is the time for which operations are collected if no caller waits;
    /// `chain_entries` is the number of entries that the chain of this process already has.
    pub(super) fn new(collect_time: Duration, chain_entries: u64) -> Self {
        let queue = Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            pause_end: Condvar::new(),
            written: watch::Sender::new(0),
            is_finished: AtomicBool::new(false),
            collect_time_us: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            exposed: AtomicI64::new(0),
            health: AtomicU8::new(WriteHealth::Writing as u8),
            replica_behind: AtomicBool::new(false),
            origin: Instant::now(),
            busy_since: AtomicU64::new(0),
            open: AtomicU64::new(0),
            chain_entries: AtomicU64::new(chain_entries),
        };
        queue.set_collect_time(collect_time);
        queue
    }

    /// Sets the time for which operations are collected if no caller waits for them.
    pub(super) fn set_collect_time(&self, collect_time: Duration) {
        let micros = u64::try_from(collect_time.as_micros()).unwrap_or(u64::MAX);
        self.collect_time_us.store(micros, Ordering::Relaxed);
    }

    /// Adds an operation to the queue; returns the operation's number, one higher than the previous one.
    pub(super) fn push(&self, op: WriteOp) -> u64 {
        self.bytes.fetch_add(op.estimated_bytes(), Ordering::Relaxed);
        // The caller of an adjustment waits for the result.
        let is_awaited = matches!(op, WriteOp::Adjustment(_));
        let mut state = self.state.lock();
        state.ops.push(op);
        state.pushed += 1;
        state.has_waiter |= is_awaited;
        let (number, wake) = (state.pushed, state.idle || is_awaited || state.is_ready());
        state.idle = false;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        number
    }

    /// Adds the bytes and exposed amounts of actions that are passed to the writer without the queue to the totals.
    pub(super) fn add_unqueued_totals(&self, actions: &[LedgerAction]) {
        let bytes = actions.iter().map(LedgerAction::estimated_bytes).sum();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.add_exposed_amount(actions.iter().map(|action| action.exposed_eur).sum());
    }

    /// Takes the next operations, at most `max_ops`. Returns no operations if the current group ends without
    /// further ones, or if nothing arrives for `patience`. Returns `None` after the queue is closed and empty, or while
    /// it is handed over.
    pub(super) fn take_operations(&self, max_ops: usize, patience: Option<Duration>) -> Option<DrainedOps> {
        let mut state = self.state.lock();
        while state.until.is_none() && (state.ops.is_empty() || state.handing_over) {
            if state.closing || state.handing_over {
                return None;
            }
            state.idle = true;
            let over = match patience {
                None => {
                    self.wake.wait(&mut state);
                    false
                }
                Some(patience) => self.wake.wait_for(&mut state, patience).timed_out(),
            };
            state.idle = false;
            if over && state.ops.is_empty() {
                return Some(DrainedOps { ops: Vec::new(), last: state.pushed, is_complete: true });
            }
        }
        let over = self.wait_for_more(&mut state);
        let max_ops = max_ops.min(MAX_GROUP_OPERATIONS - state.taken);
        let left = state.ops.len().saturating_sub(max_ops);
        let ops = if left == 0 {
            std::mem::take(&mut state.ops)
        } else {
            let rest = state.ops.split_off(max_ops);
            std::mem::replace(&mut state.ops, rest)
        };
        state.taken += ops.len();
        let whole = over || state.taken >= MAX_GROUP_OPERATIONS;
        if whole {
            (state.until, state.taken) = (None, 0);
            // A caller may still wait for one of the remaining operations.
            state.has_waiter &= left > 0;
        }
        Some(DrainedOps { ops, last: state.pushed - left as u64, is_complete: whole })
    }

    /// Collects operations for the same write until they fill a piece, the group has [`MAX_GROUP_OPERATIONS`]
    /// operations, or its time is up: the collect time, or [`WAITER_COLLECT_TIME`] after a caller waits. Returns true
    /// if the group is complete.
    fn wait_for_more(&self, state: &mut MutexGuard<'_, QueueState>) -> bool {
        let collect_time = Duration::from_micros(self.collect_time_us.load(Ordering::Relaxed));
        let mut until = state.until.unwrap_or_else(|| Instant::now() + collect_time);
        let mut hurried = false;
        while !state.closing && !state.handing_over && state.taken + state.ops.len() < MAX_GROUP_OPERATIONS {
            if state.has_waiter && !hurried {
                hurried = true;
                until = until.min(Instant::now() + WAITER_COLLECT_TIME);
            }
            state.until = Some(until);
            if state.ops.len() >= PIECE_OPERATIONS {
                return until <= Instant::now();
            }
            state.gathering = true;
            let over = self.wake.wait_until(state, until).timed_out();
            state.gathering = false;
            if over {
                return true;
            }
        }
        true
    }

    /// Shortens the collect time because a caller waits.
    pub(super) fn shorten_collect_time(&self) {
        let mut state = self.state.lock();
        let must_notify = !std::mem::replace(&mut state.has_waiter, true) && state.gathering;
        drop(state);
        if must_notify {
            self.wake.notify_one();
        }
    }

    /// Pauses the writer before its next attempt. Returns false if the queue is closed.
    pub(super) fn wait_before_retry(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.closing {
            self.pause_end.wait_for(&mut state, pause);
        }
        !state.closing
    }

    /// Closes the queue: the writer writes the remaining operations and ends.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.wake.notify_all();
        self.pause_end.notify_all();
    }

    /// Makes the writer stop after the current group (`true`), or allows another writer to start (`false`).
    pub(super) fn set_handing_over(&self, handing: bool) {
        self.state.lock().handing_over = handing;
        self.wake.notify_all();
    }

    /// Returns the number of operations in the group that the writer collects; `None` if it does not collect.
    #[cfg(test)]
    pub(super) fn collected_operation_count(&self) -> Option<usize> {
        let state = self.state.lock();
        state.gathering.then_some(state.taken)
    }

    /// Returns the number of the last operation that was pushed.
    pub(super) fn last_pushed_number(&self) -> u64 {
        self.state.lock().pushed
    }

    /// Records that a write has started (`true`) or ended (`false`).
    pub(super) fn set_writing(&self, busy: bool) {
        let since = if busy { self.now() } else { 0 };
        self.busy_since.store(since, Ordering::Release);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Returns the time since the start of the current write; zero if there is none.
    pub(super) fn current_write_duration(&self) -> Duration {
        match self.busy_since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.now().saturating_sub(since)),
        }
    }

    /// Records a failed write.
    pub(super) fn set_failing(&self) {
        self.set_health(WriteHealth::Failing);
    }

    /// Records that this process may not write any more.
    pub(super) fn set_fenced(&self) {
        self.set_health(WriteHealth::Fenced);
    }

    fn set_health(&self, health: WriteHealth) {
        self.health.store(health as u8, Ordering::Release);
    }

    /// Subtracts the bytes and the exposed amount of operations that no longer wait from the totals of the queue.
    pub(super) fn subtract_pending_totals(&self, bytes: u64, exposed: i64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.add_exposed_amount(-exposed);
    }

    /// Records a group that is on the disk.
    pub(super) fn on_committed(&self, done: &CommittedGroup) {
        self.subtract_pending_totals(done.bytes, done.exposed_eur);
        self.set_health(WriteHealth::Writing);
        self.replica_behind.store(!done.is_replicated, Ordering::Release);
        self.open.store(done.open, Ordering::Release);
        self.chain_entries.store(done.chain_entries, Ordering::Release);
    }

    /// Records whether the replica matches the store.
    pub(super) fn set_replica_current(&self, copied: bool) {
        self.replica_behind.store(!copied, Ordering::Release);
    }

    /// Records that everything up to this number is on the disk.
    pub(super) fn set_last_written_number(&self, number: u64) {
        self.written.send_replace(number);
    }

    /// Returns the number of the last operation that is on the disk.
    pub(super) fn last_written_number(&self) -> u64 {
        *self.written.borrow()
    }

    /// Waits until the operation `ticket` is on the disk; meanwhile the writer collects for a shorter time. Does not
    /// return if the writer ends before that.
    pub(super) async fn wait_until_written(&self, ticket: u64) {
        self.shorten_collect_time();
        self.written.subscribe().wait_for(|reached| *reached >= ticket).await.ok();
    }

    /// Waits like [`Self::wait_until_written`], but returns false if the writer ends before the operation is written.
    pub(super) async fn wait_durable(&self, ticket: u64) -> bool {
        self.shorten_collect_time();
        let over = || self.is_finished.load(Ordering::Acquire);
        let mut written = self.written.subscribe();
        let reached = written.wait_for(|reached| *reached >= ticket || over()).await;
        reached.is_ok_and(|reached| *reached >= ticket)
    }

    /// Records that the writer has ended and that no other writer replaces it. Does nothing during a handover, because
    /// another writer follows.
    pub(super) fn mark_writer_ended(&self) {
        if self.state.lock().handing_over {
            return;
        }
        self.is_finished.store(true, Ordering::Release);
        self.written.send_modify(|_| {});
    }

    /// Changes the exposed amount by `change`, in 1e-8 EUR.
    pub(super) fn add_exposed_amount(&self, change: i64) {
        self.exposed.fetch_add(change, Ordering::AcqRel);
    }

    /// Returns the amount of open reservations and unwritten charges, which a crash could lose, in 1e-8 EUR.
    pub(super) fn exposed_amount(&self) -> i64 {
        self.exposed.load(Ordering::Acquire)
    }

    /// Returns the approximate size of all operations that are not on the disk, in bytes.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if the last write failed, or if this process may not write any more.
    pub(super) fn is_failing(&self) -> bool {
        self.health.load(Ordering::Acquire) != WriteHealth::Writing as u8
    }

    /// Returns true if this process may not write any more.
    pub(super) fn is_fenced(&self) -> bool {
        self.health.load(Ordering::Acquire) == WriteHealth::Fenced as u8
    }

    /// Returns true if the replica matches the store.
    pub(super) fn is_replica_current(&self) -> bool {
        !self.replica_behind.load(Ordering::Acquire)
    }

    /// Returns the number of open reservations after the last commit.
    pub(super) fn open_hold_count(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the number of entries in the chain of this process after the last commit.
    pub(super) fn entry_count(&self) -> u64 {
        self.chain_entries.load(Ordering::Acquire)
    }
}

/// Figures of a committed group: written bytes and amount, and the open reservations and entries after it.
#[derive(Default)]
pub(super) struct CommittedGroup {
    pub(super) bytes: u64,
    pub(super) exposed_eur: i64,
    pub(super) is_replicated: bool,
    pub(super) open: u64,
    pub(super) chain_entries: u64,
}
