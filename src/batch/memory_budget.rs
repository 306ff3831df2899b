//! What a batch may hold in memory: its share of what all batches have together,
//! which is divided by accounts first and then by an account's batches. One that
//! begins no line for now, its key being suspended or its hour to come, holds
//! nothing and has no share. Whatever its share, a batch with nothing at work may
//! always ask one line.

use parking_lot::Mutex;
use std::collections::HashMap;

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
    /// The share of one of so many batches of one of so many accounts.
    fn of(memory: usize, accounts: usize, batches: usize) -> Self {
        let own = memory / accounts.max(1) / batches.max(1);
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

/// How many batches of each account have a share.
#[derive(Default)]
pub(super) struct Sharers(Mutex<HashMap<Box<str>, usize>>);

impl Sharers {
    /// One more of this account.
    pub(super) fn add(&self, account: &str) {
        *self.0.lock().entry(account.into()).or_default() += 1;
    }

    /// One less.
    pub(super) fn remove(&self, account: &str) {
        let mut all = self.0.lock();
        if let Some(count) = all.get_mut(account) {
            *count -= 1;
            if *count == 0 {
                all.remove(account);
            }
        }
    }

    /// The share of a batch of this account.
    pub(super) fn share(&self, memory: usize, account: &str) -> Share {
        let all = self.0.lock();
        Share::of(memory, all.len(), all.get(account).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_within_what_there_is() {
        for (memory, accounts) in [
            (32 << 20, vec![1]),
            (32 << 20, vec![20]),
            (32 << 20, vec![1, 30]),
            (24 << 20, vec![100]),
            (8 << 20, vec![7]),
            (64 << 20, vec![3, 1, 60, 1]),
        ] {
            let sharers = Sharers::default();
            for (number, batches) in accounts.iter().enumerate() {
                (0..*batches).for_each(|_| sharers.add(&number.to_string()));
            }
            let held = |(number, batches): (usize, &usize)| {
                let share = sharers.share(memory, &number.to_string());
                let own = share.ahead + share.held + share.finished + share.results * RESULT;
                batches * (own + 2 * share.group)
            };
            let held: usize = accounts.iter().enumerate().map(held).sum();
            assert!(held <= memory + memory / 8, "{accounts:?} hold {held} of {memory}");
        }
        assert_eq!(
            Share::of(1, 1, 1_000),
            Share { ahead: LEAST_READ, held: 0, finished: 0, results: 16, group: 0 }
        );
    }

    #[test]
    fn who_has_many_batches_takes_nothing_from_who_has_one() {
        let (sharers, memory) = (Sharers::default(), 32 << 20);
        sharers.add("b");
        let alone = sharers.share(memory, "b");
        (0..100).for_each(|_| sharers.add("a"));
        let beside = sharers.share(memory, "b");
        assert!(beside.held >= alone.held / 2 && beside.results >= alone.results / 2, "{beside:?}");
        (0..100).for_each(|_| sharers.remove("a"));
        assert_eq!(sharers.share(memory, "b"), alone);
        sharers.remove("b");
        assert!(sharers.0.lock().is_empty());
    }
}
