//! Days, months and timestamps of the Gregorian calendar in UTC, from 1970 to 9999, in the format of RFC 3339.
//!
//! Guarantees: each Unix timestamp in a `u64` has a day and a month; a timestamp after the year 9999, which RFC 3339
//! cannot express, has the last day and month of that year. Parsing accepts only existing dates and times: no 31st of
//! February, no hour 24, and no second 60. A parsed day or month prints as the same text.
//!
//! The arithmetic is jiff's. Times before 1970 are not supported. Only the returned strings allocate memory.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};
use std::fmt::{self, Write};
use std::time::Duration;

/// Last second with a four-digit year: 9999-12-31T23:59:59Z.
const MAX_UNIX_SECONDS: u64 = 253_402_300_799;
/// Number of seconds in a day.
const DAY_SECONDS: u64 = 86_400;
/// Start of Unix time, 1 January 1970.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Calendar day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(Date);

/// Calendar month, stored as its first day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcMonth(Date);

/// Period of a money budget: at its end, the whole budget is available again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BudgetPeriod {
    /// Day from midnight to midnight, UTC.
    Day,
    /// Calendar month, UTC.
    Month,
}

impl BudgetPeriod {
    /// Returns the name of the period in errors and lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Returns true if two timestamps in Unix seconds are in the same period.
    #[must_use]
    pub fn is_same_period(self, one: u64, other: u64) -> bool {
        match self {
            Self::Day => UtcDay::from_unix(one) == UtcDay::from_unix(other),
            Self::Month => UtcMonth::from_unix(one) == UtcMonth::from_unix(other),
        }
    }

    /// Returns the end of the period that contains `now`; both are durations since 1 January 1970, UTC.
    #[must_use]
    pub fn end(self, now: Duration) -> Duration {
        let end = match self {
            Self::Day => UtcDay::from_unix(now.as_secs()).end(),
            Self::Month => UtcMonth::from_unix(now.as_secs()).end(),
        };
        Duration::from_secs(end)
    }
}

impl UtcDay {
    /// Returns the day of a timestamp in Unix seconds.
    #[must_use]
    pub fn from_unix(unix: u64) -> Self {
        Self(date_time(unix).date())
    }

    /// Parses a day such as `2026-11-22`; `None` if it does not exist or is before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (month, day) = text.rsplit_once('-')?;
        let first = UtcMonth::parse(month)?.0;
        let day = i8::try_from(parse_digits(day, 2)?).ok()?;
        Date::new(first.year(), first.month(), day).ok().map(Self)
    }

    /// Returns the first second of the day, in Unix seconds.
    #[must_use]
    pub fn start(self) -> u64 {
        let since = self.0.to_datetime(Time::midnight()).duration_since(EPOCH);
        u64::try_from(since.as_secs()).unwrap_or_default()
    }

    /// Returns the first second after the day, in Unix seconds.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start().saturating_add(DAY_SECONDS)
    }

    /// Returns the following day; `None` for the last day of the year 9999.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.tomorrow().ok().map(Self)
    }

    /// Returns this day and those that follow it, up to and including `last`; none if `last` is earlier.
    pub fn iter_to(self, last: Self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |day| day.next()).take_while(move |day| *day <= last)
    }

    /// Returns the Monday of the week; 1 January 1970 for the days before the first Monday.
    #[must_use]
    pub fn monday(self) -> Self {
        let days_before = self.0.weekday().to_monday_zero_offset();
        let monday = self.0.saturating_sub(jiff::Span::new().days(days_before));
        Self(monday.max(EPOCH.date()))
    }
}

impl UtcMonth {
    /// Returns the month of a timestamp in Unix seconds.
    #[must_use]
    pub fn from_unix(unix: u64) -> Self {
        Self(date_time(unix).date().first_of_month())
    }

    /// Parses a month such as `2026-11`; `None` if it does not exist or is before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let (year, month) = (parse_digits(year, 4)?, parse_digits(month, 2)?);
        let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month).ok()?);
        Date::new(year, month, 1).ok().filter(|_| year >= 1970).map(Self)
    }

    /// Returns the first day of the month.
    #[must_use]
    pub const fn first_day(self) -> UtcDay {
        UtcDay(self.0)
    }

    /// Returns the last day of the month.
    #[must_use]
    pub fn last_day(self) -> UtcDay {
        UtcDay(self.0.last_of_month())
    }

    /// Returns this month and those that follow it, up to December 9999.
    pub fn iter_from(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |month| month.next())
    }

    /// Returns the first second after the month, in Unix seconds.
    #[must_use]
    pub fn end(self) -> u64 {
        self.last_day().end()
    }

    /// Returns the following month; `None` for December 9999.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.last_of_month().tomorrow().ok().map(Self)
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for UtcMonth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

/// Returns the date and time of a timestamp in Unix seconds; at most the last second of the year 9999.
fn date_time(unix: u64) -> DateTime {
    let seconds = i64::try_from(unix.min(MAX_UNIX_SECONDS)).unwrap_or_default();
    EPOCH.saturating_add(SignedDuration::from_secs(seconds))
}

/// Formats Unix seconds as RFC 3339: `2025-11-22T12:00:00Z`. A time after the year 9999, which RFC 3339 cannot express,
/// is written as the last second of that year.
#[must_use]
pub fn format_rfc3339(unix: u64) -> String {
    let mut text = String::with_capacity(24);
    let _ = write!(text, "{}Z", date_time(unix));
    text
}

/// Parses a timestamp such as `2026-11-22T14:00:00Z` or `2026-11-22T16:00:00+02:00`, with optional seconds, to Unix
/// seconds; `None` if it does not exist or is before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (day, time) = text.split_once('T')?;
    let (time, zone) = time.split_at_checked(time.find(['Z', '+', '-'])?)?;
    let (hour, rest) = time.split_once(':')?;
    let (minute, second) = rest.split_once(':').unwrap_or((rest, "00"));
    let (hour, minute, second) = (parse_digits(hour, 2)?, parse_digits(minute, 2)?, parse_digits(second, 2)?);
    // Unix time has no leap second.
    let real = hour < 24 && minute < 60 && second < 60;
    let local = UtcDay::parse(day).filter(|_| real)?.start() + hour * 3_600 + minute * 60 + second;
    local.checked_add_signed(0_i64.checked_sub(parse_utc_offset(zone)?)?)
}

/// Parses the offset of a timestamp from UTC, such as `Z`, `+02:00` or `-03:30`, to seconds.
fn parse_utc_offset(zone: &str) -> Option<i64> {
    let (sign, offset) = match zone.split_at_checked(1)? {
        ("Z", "") => return Some(0),
        ("+", offset) => (1, offset),
        ("-", offset) => (-1, offset),
        _ => return None,
    };
    let (hour, minute) = offset.split_once(':')?;
    let (hour, minute) = (parse_digits(hour, 2)?, parse_digits(minute, 2)?);
    let seconds = (hour < 24 && minute < 60).then_some(hour * 3_600 + minute * 60)?;
    Some(sign * i64::try_from(seconds).ok()?)
}

/// Parses a number of exactly `digits` digits. Refuses a sign, which `str::parse` would accept.
fn parse_digits(text: &str, digits: usize) -> Option<u64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() == digits && only_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
