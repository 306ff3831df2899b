//! Lines that are asked again, each at its time.

use super::input::Asked;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use tokio::time::Instant;

/// Lines above which no new one is begun.
const MOST: usize = 256;

/// The lines, the next first.
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
    /// Keeps a line until its time.
    pub fn push(&mut self, asked: Asked, due: Instant) {
        self.bytes += asked.body.len();
        self.lines.push(Entry { due, asked });
    }

    /// A line whose time has come.
    pub fn pop(&mut self, now: Instant) -> Option<Asked> {
        let due = self.lines.peek().is_some_and(|entry| entry.due <= now);
        let asked = due.then(|| self.lines.pop()).flatten()?.asked;
        self.bytes = self.bytes.saturating_sub(asked.body.len());
        Some(asked)
    }

    /// When the next one's time comes.
    pub fn due(&self) -> Option<Instant> {
        self.lines.peek().map(|entry| entry.due)
    }

    /// So many wait that no new line is begun: their providers have enough to do.
    pub fn is_full(&self) -> bool {
        self.lines.len() >= MOST
    }

    /// Bytes of them.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The earliest is the greatest; of equal ones the first line.
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
