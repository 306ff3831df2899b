//! Queue of lines that are retried, each at its due time.

use super::input::PendingLine;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::time::Instant;

/// Number of queued lines at which no new line starts.
const MAX_WAITING: usize = 256;

/// Number and size of the lines that wait for a retry, of a batch or of all its slices in this process together.
#[derive(Debug, Default)]
pub struct RetryLoad {
    lines: AtomicUsize,
    /// Size of the request bodies of the waiting lines, in bytes.
    bytes: AtomicUsize,
}

impl RetryLoad {
    /// Returns true if so many lines wait for a retry that no new line should start: their providers are overloaded.
    pub fn is_full(&self) -> bool {
        self.lines.load(Relaxed) >= MAX_WAITING
    }
}

/// Retry queue of a batch or slice, ordered by due time.
pub struct RetryQueue {
    lines: BinaryHeap<RetryEntry>,
    load: Arc<RetryLoad>,
}

struct RetryEntry {
    due: Instant,
    line: PendingLine,
}

impl RetryQueue {
    /// Returns an empty queue, whose lines are counted in `load`.
    pub const fn new(load: Arc<RetryLoad>) -> Self {
        Self { lines: BinaryHeap::new(), load }
    }

    /// Queues a line until its due time.
    pub fn push(&mut self, asked: PendingLine, due: Instant) {
        self.load.lines.fetch_add(1, Relaxed);
        self.load.bytes.fetch_add(asked.body.len(), Relaxed);
        self.lines.push(RetryEntry { due, line: asked });
    }

    /// Removes and returns the line that was due first; `None` if no line is due at `now`.
    pub fn pop_due_line(&mut self, now: Instant) -> Option<PendingLine> {
        let due = self.lines.peek().is_some_and(|entry| entry.due <= now);
        if due { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<PendingLine> {
        let line = self.lines.pop()?.line;
        self.load.lines.fetch_sub(1, Relaxed);
        self.load.bytes.fetch_sub(line.body.len(), Relaxed);
        Some(line)
    }

    /// Removes all lines from the retry queue.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Returns the due time of the next line; `None` if no line waits.
    pub fn next_due(&self) -> Option<Instant> {
        self.lines.peek().map(|entry| entry.due)
    }

    /// Returns true if no new line should start, see [`RetryLoad::is_full`].
    pub fn is_full(&self) -> bool {
        self.load.is_full()
    }

    /// Returns the size of the bodies of all lines that the load counts, in bytes.
    pub fn body_bytes(&self) -> usize {
        self.load.bytes.load(Relaxed)
    }
}

impl Drop for RetryQueue {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The order is reversed for the max-heap: the earliest due time first, then the lowest line index.
impl Ord for RetryEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.line.index).cmp(&(self.due, self.line.index))
    }
}

impl PartialOrd for RetryEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RetryEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for RetryEntry {}
