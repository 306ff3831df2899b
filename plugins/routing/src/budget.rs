//! The retry budget of the house: retries must not become a storm.

use std::time::Duration;

const SLICES: usize = 10;
/// Thousandths of a retry that each request earns.
const EARNED: u64 = 200;
/// Thousandths of a retry that each second earns.
const DRIP: u64 = 3_000;

/// A retry is granted while, in the ten seconds up to it (the current second
/// and the nine before), it included,
/// `retries <= 0.2 * requests + 30`.
///
/// So, when everything fails, providers see at most 1.2 times the requests
/// plus 3 a second, and a quiet house still affords its few. Ten seconds let a
/// provider that goes silent under load be routed around in one piece.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    slices: [Slice; SLICES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    /// Which second since the origin.
    second: u64,
    requests: u64,
    spent: u64,
}

impl RetryBudget {
    /// Nothing earned but the drip.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request (not a retry) begins.
    pub fn on_request(&mut self, now: Duration) {
        if let Some(slice) = self.current(now) {
            slice.requests = slice.requests.saturating_add(1);
        }
    }

    /// Takes one retry. False when there is none left: do not retry.
    pub fn try_spend(&mut self, now: Duration) -> bool {
        let granted = self.left(now) > 0;
        if granted && let Some(slice) = self.current(now) {
            slice.spent = slice.spent.saturating_add(1);
        }
        granted
    }

    /// Whole retries left at `now`.
    #[must_use]
    pub fn left(&self, now: Duration) -> u64 {
        let window = SLICES as u64;
        let young = self.slices.iter().filter(|slice| now.as_secs().saturating_sub(slice.second) < window);
        let (requests, spent) = young.fold((0_u64, 0_u64), |(requests, spent), slice| {
            (requests.saturating_add(slice.requests), spent.saturating_add(slice.spent))
        });
        let earned = requests.saturating_mul(EARNED).saturating_add(DRIP * window);
        earned.saturating_sub(spent.saturating_mul(1_000)) / 1_000
    }

    fn current(&mut self, now: Duration) -> Option<&mut Slice> {
        let second = now.as_secs();
        let slice = self.slices.get_mut(usize::try_from(second % SLICES as u64).ok()?)?;
        if slice.second < second {
            *slice = Slice { second, ..Slice::default() };
        }
        Some(slice)
    }
}
