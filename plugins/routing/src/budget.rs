//! Retry budget of the gateway, which prevents retry storms.

use std::time::Duration;

const SLICES: usize = 10;
/// Thousandths of a retry earned by each request.
const MILLI_PER_REQUEST: u64 = 200;
/// Thousandths of a retry earned per second.
const MILLI_PER_SECOND: u64 = 3_000;

/// Retry budget over the last ten seconds (the current second and the nine before). A retry is granted if afterwards
/// `retries <= 0.2 * requests + 30` holds, with this retry included.
///
/// If everything fails, providers therefore receive at most 1.2 times the requests plus 3 per second, and a gateway
/// with few requests can still retry. A window of ten seconds allows one burst of retries when a provider stops
/// responding under load.
#[derive(Clone, Debug, Default)]
pub struct RetryBudget {
    slices: [BudgetSlice; SLICES],
}

#[derive(Clone, Copy, Debug, Default)]
struct BudgetSlice {
    /// Index of the second, counted from the origin of time.
    second: u64,
    requests: u64,
    spent: u64,
}

impl RetryBudget {
    /// Returns a budget without recorded requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the start of a request (not of a retry).
    pub fn on_request(&mut self, now: Duration) {
        if let Some(slice) = self.current(now) {
            slice.requests = slice.requests.saturating_add(1);
        }
    }

    /// Takes one retry from the budget. Returns false if none is left; then the caller must not retry.
    pub fn try_spend(&mut self, now: Duration) -> bool {
        let granted = self.remaining(now) > 0;
        if granted && let Some(slice) = self.current(now) {
            slice.spent = slice.spent.saturating_add(1);
        }
        granted
    }

    /// Returns the number of whole retries left at `now`.
    #[must_use]
    pub fn remaining(&self, now: Duration) -> u64 {
        let window = SLICES as u64;
        let young = self.slices.iter().filter(|slice| now.as_secs().saturating_sub(slice.second) < window);
        let (requests, spent) = young.fold((0_u64, 0_u64), |(requests, spent), slice| {
            (requests.saturating_add(slice.requests), spent.saturating_add(slice.spent))
        });
        let earned = requests.saturating_mul(MILLI_PER_REQUEST).saturating_add(MILLI_PER_SECOND * window);
        earned.saturating_sub(spent.saturating_mul(1_000)) / 1_000
    }

    fn current(&mut self, now: Duration) -> Option<&mut BudgetSlice> {
        let second = now.as_secs();
        let slice = self.slices.get_mut(usize::try_from(second % SLICES as u64).ok()?)?;
        if slice.second < second {
            *slice = BudgetSlice { second, ..BudgetSlice::default() };
        }
        Some(slice)
    }
}
