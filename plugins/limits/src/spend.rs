//! Money spent in the running day and month, UTC. A window ends at midnight;
//! what was spent in it is over then, and no debt is carried along.

use std::time::Duration;

const DAY: u64 = 86_400;

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
        let days = now.as_secs() / DAY;
        let end = match self {
            Self::Day => days + 1,
            Self::Month => {
                let (year, month) = month_of(days);
                if month == 12 { days_until(year + 1, 1) } else { days_until(year, month + 1) }
            }
        };
        Duration::from_secs(end.saturating_mul(DAY))
    }
}

/// Year and month of a day since 1970. Years begin in March here, so that the
/// leap day is last (after H. Hinnant, `civil_from_days`, public domain).
const fn month_of(days: u64) -> (u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let index = (5 * day_of_year + 2) / 153;
    let month = if index < 10 { index + 3 } else { index - 9 };
    let late = if month <= 2 { 1 } else { 0 };
    (year_of_era + era * 400 + late, month)
}

/// Days from 1970 to the first of a month (`days_from_civil`, the same source).
const fn days_until(year: u64, month: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5;
    (era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year)
        .saturating_sub(719_468)
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
