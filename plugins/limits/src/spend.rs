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

    /// Which one `now` lies in: days since 1970, or months since the year 0.
    fn number(self, now: Duration) -> u32 {
        let days = now.as_secs() / DAY;
        let number = match self {
            Self::Day => days,
            Self::Month => {
                let (year, month) = month_of(days);
                year * 12 + month - 1
            }
        };
        u32::try_from(number).unwrap_or(u32::MAX)
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
    day: u32,
    month: u32,
    in_day: u64,
    in_month: u64,
}

impl Spend {
    /// What was spent by `at`, as it was written down then.
    #[must_use]
    pub fn restored(in_day: u64, in_month: u64, at: Duration) -> Self {
        Self { day: Period::Day.number(at), month: Period::Month.number(at), in_day, in_month }
    }

    /// Adds what was spent at `now`.
    pub fn add(&mut self, micro: u64, now: Duration) {
        let (day, month) = (Period::Day.number(now), Period::Month.number(now));
        // A clock that goes back does not open an old window again.
        if day > self.day {
            (self.day, self.in_day) = (day, 0);
        }
        if month > self.month {
            (self.month, self.in_month) = (month, 0);
        }
        self.in_day = self.in_day.saturating_add(micro);
        self.in_month = self.in_month.saturating_add(micro);
    }

    /// What was spent in the period that `now` lies in.
    #[must_use]
    pub fn within(&self, period: Period, now: Duration) -> u64 {
        let (number, micro) = match period {
            Period::Day => (self.day, self.in_day),
            Period::Month => (self.month, self.in_month),
        };
        if period.number(now) > number { 0 } else { micro }
    }
}
