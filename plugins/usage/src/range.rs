//! Range of a usage query: whole days in UTC.

use crate::cell::HourNumber;
use crate::day::DayNumber;
use penstock_core::calendar::UtcDay;

/// Maximum number of days of a query.
pub const MAX_RANGE_DAYS: u64 = 366;
/// Number of days of a query without a first day, including the last day.
const DEFAULT_DAYS: u64 = 30;
const DAY_SECONDS: u64 = 86_400;

/// Error of a range of days, by the invalid parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The first day is not a valid day.
    #[error("from: expected a day in UTC such as 2026-11-22")]
    InvalidFirstDay,
    /// The last day is not a valid day.
    #[error("to: expected a day in UTC such as 2026-11-22")]
    InvalidLastDay,
    /// The last day is before the first day.
    #[error("to: expected a day that is not before from")]
    ReversedDays,
    /// The range has more than [`MAX_RANGE_DAYS`] days.
    #[error("from: expected at most {MAX_RANGE_DAYS} days up to the day in to")]
    TooManyDays,
}

impl RangeError {
    /// Returns the name of the invalid parameter.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::InvalidFirstDay | Self::TooManyDays => "from",
            Self::InvalidLastDay | Self::ReversedDays => "to",
        }
    }
}

/// Days of a query, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRange {
    /// First day of the range.
    pub from: UtcDay,
    /// Last day of the range.
    pub to: UtcDay,
}

impl UsageRange {
    /// Parses the days of a query. Without a last day, the range ends with the day of `now`, in Unix seconds; without a
    /// first day, it has 30 days.
    ///
    /// # Errors
    /// Returns the invalid parameter.
    pub fn parse(from: Option<&str>, to: Option<&str>, now: u64) -> Result<Self, RangeError> {
        let to = match to {
            Some(text) => UtcDay::parse(text).ok_or(RangeError::InvalidLastDay)?,
            None => UtcDay::from_unix(now),
        };
        let from = match from {
            Some(text) => UtcDay::parse(text).ok_or(RangeError::InvalidFirstDay)?,
            None => UtcDay::from_unix(to.start().saturating_sub((DEFAULT_DAYS - 1) * DAY_SECONDS)),
        };
        let range = Self { from, to };
        if to < from {
            return Err(RangeError::ReversedDays);
        }
        if range.day_count() > MAX_RANGE_DAYS {
            return Err(RangeError::TooManyDays);
        }
        Ok(range)
    }

    /// Returns the number of days.
    #[must_use]
    pub fn day_count(self) -> u64 {
        (self.to.start().saturating_sub(self.from.start())) / DAY_SECONDS + 1
    }

    /// Returns the first day, and the day after the last one.
    #[must_use]
    pub fn day_bounds(self) -> (DayNumber, DayNumber) {
        (self.from.into(), DayNumber::from(self.to).next())
    }

    /// Returns the first hour, and the hour after the last one.
    #[must_use]
    pub fn hour_bounds(self) -> (HourNumber, HourNumber) {
        (HourNumber::from_unix(self.from.start()), HourNumber::from_unix(self.to.end()))
    }
}
