//! What a batch may hold in memory: its share of what all batches have together.
//! Whatever its share, a batch with nothing at work may always ask one line.

/// The bounds of one batch, in bytes where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Lines read ahead, at once and in all.
    pub(super) ahead: usize,
    /// Lines at work, and those that are asked again.
    pub(super) held: usize,
    /// Results that wait for the disk, those expected of lines at work included.
    pub(super) finished: usize,
    /// How many of them.
    pub(super) results: usize,
    /// Results on their way to the disk.
    pub(super) group: usize,
}

/// Least and most that is read at once.
const LEAST_READ: usize = 16 << 10;
const MOST_READ: usize = 1 << 20;
/// What a result is besides its text.
const RESULT: usize = 1 << 10;
const MOST_RESULTS: usize = 2_048;

impl Share {
    /// The share of one of so many batches.
    pub(super) fn of(memory: usize, batches: usize) -> Self {
        let own = memory / batches.max(1);
        Self {
            ahead: (own / 8).clamp(LEAST_READ, MOST_READ),
            held: own / 4,
            finished: own / 4,
            results: (own / 8 / RESULT).clamp(16, MOST_RESULTS),
            // It is there twice: as lines, and as one piece.
            group: own / 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_within_what_there_is() {
        for (memory, batches) in [(32 << 20, 1), (32 << 20, 20), (24 << 20, 100), (8 << 20, 7)] {
            let share = Share::of(memory, batches);
            let own = share.ahead + share.held + share.finished + share.results * RESULT + 2 * share.group;
            assert!(
                own * batches <= memory + memory / 8,
                "{batches} batches hold {} of {memory}",
                own * batches
            );
        }
        assert_eq!(
            Share::of(1, 1_000),
            Share { ahead: LEAST_READ, held: 0, finished: 0, results: 16, group: 0 }
        );
    }
}
