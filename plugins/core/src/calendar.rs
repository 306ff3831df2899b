//! Days, months and timestamps of the Gregorian calendar in UTC, from 1970 on, in the format of RFC 3339.
//!
//! Guarantees: each Unix timestamp in a `u64` has a day and a month. Parsing accepts only existing dates and times: no
//! 31st of February, no hour 24, no second 60. A parsed value prints as the same text.
//!
//! Times before 1970 are not supported. Only the returned strings allocate memory.

use std::fmt;

/// Seconds per day.
const DAY_SECONDS: u64 = 86_400;
/// Last second with a four-digit year: 9999-12-31T23:59:59Z.
const MAX_UNIX_SECONDS: u64 = 253_402_300_799;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;
/// Days per 400 years, after which the calendar repeats.
const ERA_DAYS: u64 = 146_097;

/// Calendar day, as days since 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcDay(u64);

/// Calendar month, from January 1970 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcMonth {
    year: u64,
    /// Number from 1 to 12.
    month: u64,
}

impl UtcDay {
    /// Day of a timestamp in Unix seconds.
    #[must_use]
    pub const fn from_unix(unix: u64) -> Self {
        Self(unix / DAY_SECONDS)
    }

    /// Parses a day such as `2026-11-22`; `None` if it does not exist or is before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (month, day) = text.rsplit_once('-')?;
        let month = UtcMonth::parse(month)?;
        let found = Self(month.first_day().0 + parse_digits(day, 2)?.checked_sub(1)?);
        // Rejects a day number beyond the end of the month.
        (UtcMonth::from_unix(found.start()) == month).then_some(found)
    }

    /// First second of the day, in Unix seconds.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.0.saturating_mul(DAY_SECONDS)
    }

    /// Following day.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Year, month and day of the month. The calculation starts years in March, so that the leap day is last (after H.
    /// Hinnant's `civil_from_days`, public domain).
    const fn date(self) -> (u64, u64, u64) {
        let days = self.0 + EPOCH_DAYS;
        let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let late = if month <= 2 { 1 } else { 0 };
        (year + era * 400 + late, month, day)
    }
}

impl UtcMonth {
    /// Month of a timestamp in Unix seconds.
    #[must_use]
    pub const fn from_unix(unix: u64) -> Self {
        let (year, month, _) = UtcDay::from_unix(unix).date();
        Self { year, month }
    }

    /// Parses a month such as `2026-11`; `None` if it does not exist or is before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let (year, month) = (parse_digits(year, 4)?, parse_digits(month, 2)?);
        (year >= 1970 && (1..=12).contains(&month)).then_some(Self { year, month })
    }

    /// First day of the month (`days_from_civil`, the same source).
    #[must_use]
    pub const fn first_day(self) -> UtcDay {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let (era, of_era) = (year / 400, year % 400);
        let shifted = if self.month > 2 { self.month - 3 } else { self.month + 9 };
        let of_year = (153 * shifted + 2) / 5;
        UtcDay(era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_DAYS)
    }

    /// Following month.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year + 1, month: 1 },
            month => Self { year: self.year, month: month + 1 },
        }
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for UtcMonth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

/// Formats Unix seconds as RFC 3339: `2025-11-22T12:00:00Z`. Times after the year 9999, which RFC 3339 cannot express,
/// become its last second.
#[must_use]
pub fn format_rfc3339(unix: u64) -> String {
    let unix = if unix > MAX_UNIX_SECONDS { MAX_UNIX_SECONDS } else { unix };
    let (year, month, day) = UtcDay::from_unix(unix).date();
    let rest = unix % DAY_SECONDS;
    let mut text = String::with_capacity(24);
    // Written without `format!`, which takes ten times as long: each response to a key with limits has such a
    // timestamp.
    let parts = [
        (year / 100, ""),
        (year % 100, "-"),
        (month, "-"),
        (day, "T"),
        (rest / 3_600, ":"),
        (rest / 60 % 60, ":"),
        (rest % 60, "Z"),
    ];
    for (number, after) in parts {
        for digit in [number / 10 % 10, number % 10] {
            text.push(char::from(b'0' + u8::try_from(digit).unwrap_or(0)));
        }
        text.push_str(after);
    }
    text
}

/// Parses a timestamp such as `2026-11-22T14:00:00Z`, with optional seconds, to Unix seconds; `None` if it does not
/// exist or is before 1970.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<u64> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (hour, rest) = time.split_once(':')?;
    let (minute, second) = rest.split_once(':').unwrap_or((rest, "00"));
    let (hour, minute, second) = (parse_digits(hour, 2)?, parse_digits(minute, 2)?, parse_digits(second, 2)?);
    // Unix time has no leap second.
    let real = hour < 24 && minute < 60 && second < 60;
    Some(UtcDay::parse(day).filter(|_| real)?.start() + hour * 3_600 + minute * 60 + second)
}

/// Parses a number with exactly this many digits and without a sign, which `parse` would accept.
fn parse_digits(text: &str, digits: usize) -> Option<u64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() == digits && only_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
