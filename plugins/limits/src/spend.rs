//! Money spent in the running day and month, UTC. A window ends at midnight;
//! what was spent in it is over then, and no debt is carried along.

use penstock_contract::calendar::{Day, Month};
use std::time::Duration;

/// A window of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the first of the next, UTC.
    Month,
}

impl Period {
    /// Its name in refusals and lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// When the one that `now` lies in is over.
    #[must_use]
    pub fn end(self, now: Duration) -> Duration {
        let end = match self {
            Self::Day => Day::of(now.as_secs()).next(),
            Self::Month => Month::of(now.as_secs()).next().first(),
        };
        Duration::from_secs(end.start())
    }
}

/// What was spent in the running day and month, micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spend {
    day: Window,
    month: Window,
}

/// What was spent in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// When it is over, seconds since 1970; kept, so that a request only compares.
    end: u64,
    micro: u64,
}

impl Window {
    /// A clock that goes back finds no old window: what is spent then counts in the newest.
    fn add(&mut self, period: Period, micro: u64, now: Duration) {
        if now.as_secs() >= self.end {
            *self = Self { end: period.end(now).as_secs(), micro: 0 };
        }
        self.micro = self.micro.saturating_add(micro);
    }
}

impl Spend {
    /// What was spent by `at`, as it was written down then.
    #[must_use]
    pub fn restored(in_day: u64, in_month: u64, at: Duration) -> Self {
        let window = |period: Period, micro| Window { end: period.end(at).as_secs(), micro };
        Self { day: window(Period::Day, in_day), month: window(Period::Month, in_month) }
    }

    /// Adds what was spent at `now`.
    pub fn add(&mut self, micro: u64, now: Duration) {
        self.day.add(Period::Day, micro, now);
        self.month.add(Period::Month, micro, now);
    }

    /// What was spent in the period that `now` lies in.
    #[must_use]
    pub fn within(&self, period: Period, now: Duration) -> u64 {
        let window = match period {
            Period::Day => self.day,
            Period::Month => self.month,
        };
        if now.as_secs() >= window.end { 0 } else { window.micro }
    }
}
