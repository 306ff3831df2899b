//! Sliding window of attempt outcomes, in six slices.

use std::time::Duration;

/// Number of slices of a window.
pub(super) const SLICE_COUNT: u64 = 6;

/// Outcome counts of the attempts in a recent time span, with a resolution of one sixth of that span.
#[derive(Clone, Debug)]
pub(super) struct OutcomeWindow {
    /// Milliseconds of a slice, at least 1.
    slice: u64,
    slices: [OutcomeSlice; SLICE_COUNT as usize],
}

/// Number of attempts by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutcomeCounts {
    pub(super) successes: u32,
    pub(super) failures: u32,
    /// Responses with status 429.
    pub(super) limited: u32,
}

impl OutcomeCounts {
    const fn sum(self, other: Self) -> Self {
        Self {
            successes: self.successes.saturating_add(other.successes),
            failures: self.failures.saturating_add(other.failures),
            limited: self.limited.saturating_add(other.limited),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct OutcomeSlice {
    /// Index of the slice, counted from the origin of time.
    number: u64,
    seen: OutcomeCounts,
}

impl OutcomeWindow {
    /// Returns an empty window of the length `span`.
    pub(super) fn new(span: Duration) -> Self {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self { slice: (millis / SLICE_COUNT).max(1), slices: Default::default() }
    }

    /// Adds outcome counts to the slice that contains `now`.
    pub(super) fn add(&mut self, now: Duration, counts: OutcomeCounts) {
        let number = self.slice_number(now);
        let index = usize::try_from(number % SLICE_COUNT).unwrap_or(0);
        let Some(slice) = self.slices.get_mut(index) else { return };
        if slice.number < number {
            *slice = OutcomeSlice { number, seen: OutcomeCounts::default() };
        }
        slice.seen = slice.seen.sum(counts);
    }

    /// Returns the sums of the slices inside the window.
    pub(super) fn totals(&self, now: Duration) -> OutcomeCounts {
        let number = self.slice_number(now);
        let young = self.slices.iter().filter(|slice| number.saturating_sub(slice.number) < SLICE_COUNT);
        young.fold(OutcomeCounts::default(), |sum, slice| sum.sum(slice.seen))
    }

    pub(super) fn clear(&mut self) {
        self.slices = Default::default();
    }

    /// Returns the index of the slice that contains this time.
    pub(super) fn slice_number(&self, now: Duration) -> u64 {
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX) / self.slice
    }
}
