//! Memory limits of a batch: its share of `batches.memory`. The memory is divided equally among the accounts with
//! batches, and the share of an account among its batches. A batch that starts no lines for now (its key is suspended,
//! or it waits for its scheduled hour) uses no memory and has no share. A batch without lines in flight may always
//! start one line, even if that exceeds its share.

use parking_lot::Mutex;
use std::collections::HashMap;

/// Limits of one batch, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchMemoryLimits {
    /// Maximum size of the prefetched lines, per read and in total.
    pub(super) prefetch_bytes: usize,
    /// Maximum size of the lines in flight and of those that wait for a retry, together.
    pub(super) in_flight_bytes: usize,
    /// Maximum size of the results that wait for the disk, including the expected results of lines in flight.
    pub(super) result_bytes: usize,
    /// Maximum number of results that wait for the disk.
    pub(super) max_results: usize,
    /// Maximum size of a group of results that is written to the disk.
    pub(super) group_bytes: usize,
}

/// Smallest and largest value of `prefetch_bytes`.
const MIN_READ: usize = 16 << 10;
const MAX_READ: usize = 1 << 20;
/// Assumed memory of a result besides its text, in bytes.
const RESULT_OVERHEAD: usize = 1 << 10;
const MAX_RESULTS: usize = 2_048;

impl BatchMemoryLimits {
    /// Computes the limits of one batch from the memory of all batches in bytes, the number of accounts with batches,
    /// and the number of batches of this account.
    fn for_batch(memory: usize, accounts: usize, batches: usize) -> Self {
        let own = memory / accounts.max(1) / batches.max(1);
        Self {
            prefetch_bytes: (own / 8).clamp(MIN_READ, MAX_READ),
            in_flight_bytes: own / 4,
            result_bytes: own / 4,
            max_results: (own / 8 / RESULT_OVERHEAD).clamp(16, MAX_RESULTS),
            // A group is in memory twice, as lines and as one buffer, so its limit is lower.
            group_bytes: own / 8,
        }
    }
}

/// Division of the batch memory: the number of batches with a share, by account.
#[derive(Default)]
pub(super) struct BatchMemoryShares(Mutex<HashMap<Box<str>, usize>>);

impl BatchMemoryShares {
    /// Adds a batch of this account.
    pub(super) fn add_batch(&self, account: &str) {
        *self.0.lock().entry(account.into()).or_default() += 1;
    }

    /// Removes a batch of this account.
    pub(super) fn remove_batch(&self, account: &str) {
        let mut all = self.0.lock();
        if let Some(count) = all.get_mut(account) {
            *count -= 1;
            if *count == 0 {
                all.remove(account);
            }
        }
    }

    /// Returns the limits of a batch of this account; `memory` is that of all batches, in bytes.
    pub(super) fn limits_for_batch(&self, memory: usize, account: &str) -> BatchMemoryLimits {
        let all = self.0.lock();
        BatchMemoryLimits::for_batch(memory, all.len(), all.get(account).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_add_up_to_at_most_the_total() {
        for (memory, accounts) in [
            (32 << 20, vec![1]),
            (32 << 20, vec![20]),
            (32 << 20, vec![1, 30]),
            (24 << 20, vec![100]),
            (8 << 20, vec![7]),
            (64 << 20, vec![3, 1, 60, 1]),
        ] {
            let sharers = BatchMemoryShares::default();
            for (number, batches) in accounts.iter().enumerate() {
                (0..*batches).for_each(|_| sharers.add_batch(&number.to_string()));
            }
            let held = |(number, batches): (usize, &usize)| {
                let share = sharers.limits_for_batch(memory, &number.to_string());
                let own = share.prefetch_bytes
                    + share.in_flight_bytes
                    + share.result_bytes
                    + share.max_results * RESULT_OVERHEAD;
                batches * (own + 2 * share.group_bytes)
            };
            let held: usize = accounts.iter().enumerate().map(held).sum();
            assert!(held <= memory + memory / 8, "{accounts:?} hold {held} of {memory}");
        }
        assert_eq!(
            BatchMemoryLimits::for_batch(1, 1, 1_000),
            BatchMemoryLimits {
                prefetch_bytes: MIN_READ,
                in_flight_bytes: 0,
                result_bytes: 0,
                max_results: 16,
                group_bytes: 0
            }
        );
    }

    #[test]
    fn an_account_with_many_batches_does_not_starve_one_with_a_single_batch() {
        let (sharers, memory) = (BatchMemoryShares::default(), 32 << 20);
        sharers.add_batch("b");
        let alone = sharers.limits_for_batch(memory, "b");
        (0..100).for_each(|_| sharers.add_batch("a"));
        let beside = sharers.limits_for_batch(memory, "b");
        assert!(
            beside.in_flight_bytes >= alone.in_flight_bytes / 2
                && beside.max_results >= alone.max_results / 2,
            "{beside:?}"
        );
        (0..100).for_each(|_| sharers.remove_batch("a"));
        assert_eq!(sharers.limits_for_batch(memory, "b"), alone);
        sharers.remove_batch("b");
        assert!(sharers.0.lock().is_empty());
    }
}
