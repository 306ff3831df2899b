//! Days and months in UTC, from Unix seconds.

use std::fmt;

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub u64);

/// A month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    /// Year, 1970 to 9999.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
}

impl Day {
    /// The day of a moment.
    #[must_use]
    pub const fn of(unix: u64) -> Self {
        Self(unix / DAY)
    }

    /// `2026-11-22`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (month, day) = text.rsplit_once('-')?;
        let month = Month::parse(month)?;
        let day: u64 = number(day, 2)?;
        let found = Self(month.first().0 + day.checked_sub(1)?);
        (Month::of(found.start()) == month).then_some(found)
    }

    /// Its first second.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.0 * DAY
    }

    /// Year, month, day of the month (after H. Hinnant's civil calendar).
    fn civil(self) -> (u64, u64, u64) {
        let days = self.0 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        (year + era * 400 + u64::from(month <= 2), month, day)
    }
}

impl Month {
    /// The month of a moment.
    #[must_use]
    pub fn of(unix: u64) -> Self {
        let (year, month, _) = Day::of(unix).civil();
        Self { year: u16::try_from(year).unwrap_or(9999), month: u8::try_from(month).unwrap_or(1) }
    }

    /// `2026-11`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let (year, month) = (number(year, 4)?, number(month, 2)?);
        let known = (1970..=9999).contains(&year) && (1..=12).contains(&month);
        known.then_some(Self { year: year as u16, month: month as u8 })
    }

    /// Its first day.
    #[must_use]
    pub fn first(self) -> Day {
        let (year, month) = (u64::from(self.year), u64::from(self.month));
        let year = year - u64::from(month <= 2);
        let (era, of_era) = (year / 400, year % 400);
        let shifted = if month > 2 { month - 3 } else { month + 9 };
        let of_year = (153 * shifted + 2) / 5;
        Day(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
    }

    /// The month after it.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.month {
            12 => Self { year: self.year + 1, month: 1 },
            month => Self { year: self.year, month: month + 1 },
        }
    }
}

/// Exactly so many digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if text.len() == digits && only_digits { text.parse().ok() } else { None }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_day_of_two_hundred_years_is_read_as_it_is_written() {
        let mut last = Month::of(0);
        for day in 0..73_000 {
            let day = Day(day);
            assert_eq!(Day::parse(&day.to_string()), Some(day));
            let month = Month::of(day.start());
            assert_eq!(Month::parse(&month.to_string()), Some(month));
            assert!(month == last || month == last.next());
            assert!(month.first() <= day && day < month.next().first());
            last = month;
        }
    }

    #[test]
    fn known_dates_and_what_is_none() {
        assert_eq!(Day::of(1_795_305_600).to_string(), "2026-11-22");
        assert_eq!(Day::parse("2024-02-29").map(|day| day.to_string()).as_deref(), Some("2024-02-29"));
        for none in [
            "2026-02-29",
            "2026-13-01",
            "2026-1-01",
            "2026-11-00",
            "2026-11-31",
            "x",
            "2026-11",
            "+026-01-01",
        ] {
            assert_eq!(Day::parse(none), None, "{none}");
        }
        assert_eq!(Month::parse("2026-00"), None);
    }
}
