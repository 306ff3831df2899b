//! Queue of lines that are retried, each at its due time.

use super::input::PendingLine;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use tokio::time::Instant;

/// Number of queued lines at which no new line starts.
const MAX_WAITING: usize = 256;

/// Retry queue of a batch, ordered by due time.
#[derive(Default)]
pub struct RetryQueue {
    lines: BinaryHeap<RetryEntry>,
    bytes: usize,
}

struct RetryEntry {
    due: Instant,
    line: PendingLine,
}

impl RetryQueue {
    /// Queues a line until its due time.
    pub fn push(&mut self, asked: PendingLine, due: Instant) {
        self.bytes += asked.body.len();
        self.lines.push(RetryEntry { due, line: asked });
    }

    /// Removes and returns a line that is due.
    pub fn pop_due_line(&mut self, now: Instant) -> Option<PendingLine> {
        let due = self.lines.peek().is_some_and(|entry| entry.due <= now);
        let asked = due.then(|| self.lines.pop()).flatten()?.line;
        self.bytes = self.bytes.saturating_sub(asked.body.len());
        Some(asked)
    }

    /// Due time of the next line.
    pub fn next_due(&self) -> Option<Instant> {
        self.lines.peek().map(|entry| entry.due)
    }

    /// Returns true if so many lines wait for a retry that no new line should start: their providers are overloaded.
    pub fn is_full(&self) -> bool {
        self.lines.len() >= MAX_WAITING
    }

    /// Bytes of the queued bodies.
    pub const fn body_bytes(&self) -> usize {
        self.bytes
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
