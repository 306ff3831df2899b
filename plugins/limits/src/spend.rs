//! Money spent in the current UTC day and month. Each period ends at midnight; its spending then expires, and no debt
//! is carried over.

use penstock_core::calendar::BudgetPeriod;
use std::time::Duration;

/// Micro-credits spent in the current day and month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpendTotals {
    day: SpendWindow,
    month: SpendWindow,
}

/// Micro-credits spent in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SpendWindow {
    /// End of the window in seconds since 1970. The end is stored, so a request only compares it with the clock.
    end: u64,
    micro: u64,
}

impl SpendWindow {
    /// Adds spending. If the clock goes backwards, the spending still counts in the newest window.
    fn add(&mut self, period: BudgetPeriod, micro: u64, now: Duration) {
        if now.as_secs() >= self.end {
            *self = Self { end: period.end(now).as_secs(), micro: 0 };
        }
        self.micro = self.micro.saturating_add(micro);
    }
}

impl SpendTotals {
    /// Restores the stored spending, in micro-credits, of the day and the month that contain `at`.
    #[must_use]
    pub fn from_stored(in_day: u64, in_month: u64, at: Duration) -> Self {
        let window = |period: BudgetPeriod, micro| SpendWindow { end: period.end(at).as_secs(), micro };
        Self { day: window(BudgetPeriod::Day, in_day), month: window(BudgetPeriod::Month, in_month) }
    }

    /// Adds the spending of `micro` micro-credits at the time `now` to the day and the month.
    pub fn add(&mut self, micro: u64, now: Duration) {
        self.day.add(BudgetPeriod::Day, micro, now);
        self.month.add(BudgetPeriod::Month, micro, now);
    }

    /// Returns the micro-credits spent in the period that contains `now`.
    #[must_use]
    pub fn spent_in(&self, period: BudgetPeriod, now: Duration) -> u64 {
        let window = match period {
            BudgetPeriod::Day => self.day,
            BudgetPeriod::Month => self.month,
        };
        if now.as_secs() >= window.end { 0 } else { window.micro }
    }
}
