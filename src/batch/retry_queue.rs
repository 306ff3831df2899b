//! Queue of lines that are retried, each at its due time.

use super::input::Asked;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use tokio::time::Instant;

/// Number of queued lines at which no new line starts.
const MOST: usize = 256;

/// Retry queue of a batch, ordered by due time.
#[derive(Default)]
pub struct Later {
    lines: BinaryHeap<Entry>,
    bytes: usize,
}

struct Entry {
    due: Instant,
    asked: Asked,
}

impl Later {
    /// Queues a line until its due time.
    pub fn push(&mut self, asked: Asked, due: Instant) {
        self.bytes += asked.body.len();
        self.lines.push(Entry { due, asked });
    }

    /// Removes and returns a line that is due.
    pub fn pop(&mut self, now: Instant) -> Option<Asked> {
        let due = self.lines.peek().is_some_and(|entry| entry.due <= now);
        let asked = due.then(|| self.lines.pop()).flatten()?.asked;
        self.bytes = self.bytes.saturating_sub(asked.body.len());
        Some(asked)
    }

    /// Due time of the next line.
    pub fn due(&self) -> Option<Instant> {
        self.lines.peek().map(|entry| entry.due)
    }

    /// Returns true if so many lines wait that no new one starts: their providers are overloaded.
    pub fn is_full(&self) -> bool {
        self.lines.len() >= MOST
    }

    /// Bytes of the queued bodies.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The order is reversed for the max-heap: the earliest due time first, then the lowest line index.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.asked.index).cmp(&(self.due, self.asked.index))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
