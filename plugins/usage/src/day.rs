//! Rollups of whole days, added up from the rollups of their hours.
//!
//! The row of a day has the format of an hour's row, with `2^31` plus the days since 1970-01-01 as its hour number.
//! Earlier versions take it for an hour in the far future, which no query reaches.

use crate::cell::{HourNumber, RollupDimensions};
use crate::row::{RowError, decode_row, hour_key_prefix, parse_row_key};
use crate::sums::UsageSums;
use penstock_core::calendar::UtcDay;
use std::collections::BTreeMap;

/// Number of hours in a day.
const DAY_HOURS: u32 = 24;
/// Seconds per day.
const DAY_SECONDS: u64 = 86_400;
/// Hour number of the row of 1970-01-01. Hours have lower numbers until the year 246,953.
const FIRST_ROW_NUMBER: u32 = 1 << 31;
/// Bytes of a row key that depend on neither account nor time: the hash of the other dimensions.
const HASH_BYTES: usize = 16;

/// Day in UTC, as days since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DayNumber(pub u32);

impl DayNumber {
    /// Returns the day that contains a time in Unix seconds.
    #[must_use]
    pub fn from_unix(unix: u64) -> Self {
        Self(u32::try_from(unix / DAY_SECONDS).unwrap_or(u32::MAX / DAY_HOURS))
    }

    /// Returns the day that contains an hour.
    #[must_use]
    pub const fn from_hour(hour: HourNumber) -> Self {
        Self(hour.0 / DAY_HOURS)
    }

    /// Returns the first hour of the day.
    #[must_use]
    pub const fn first_hour(self) -> HourNumber {
        HourNumber(self.0.saturating_mul(DAY_HOURS))
    }

    /// Returns the following day.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number that the row keys of the day have in place of an hour.
    const fn row_number(self) -> HourNumber {
        HourNumber(FIRST_ROW_NUMBER.saturating_add(self.0))
    }
}

impl From<UtcDay> for DayNumber {
    fn from(day: UtcDay) -> Self {
        Self::from_unix(day.start())
    }
}

/// Returns the key prefix of the rows of a day: the exclusive start of a scan of this day and later ones.
#[must_use]
pub fn day_key_prefix(account: &str, day: DayNumber) -> Vec<u8> {
    hour_key_prefix(account, day.row_number())
}

/// Returns the day in the key of a day's row; `None` for the row of an hour or of the watermark.
///
/// # Errors
/// Returns an error if the key has another form.
pub fn day_from_row_key(key: &[u8]) -> Result<Option<DayNumber>, RowError> {
    let (_, number) = parse_row_key(key)?;
    Ok(number.0.checked_sub(FIRST_ROW_NUMBER).map(DayNumber).filter(|_| number != HourNumber(u32::MAX)))
}

/// Decodes the row of a day. Its dimensions have the first hour of the day as their hour.
///
/// # Errors
/// Returns an error if key or value have another form.
pub fn decode_day_row(key: &[u8], value: &[u8]) -> Result<(RollupDimensions, UsageSums), RowError> {
    let day = day_from_row_key(key)?.ok_or(RowError::InvalidFormat)?;
    let (cell, sums) = decode_row(key, value)?;
    Ok((RollupDimensions { hour: day.first_hour(), ..cell }, sums))
}

/// Rollups of one account and day, added up from those of its hours.
#[derive(Clone, Debug, Default)]
pub struct DayRollups {
    day: DayNumber,
    cells: BTreeMap<[u8; HASH_BYTES], (RollupDimensions, UsageSums)>,
}

impl DayRollups {
    /// Adds the rollup of an hour with its row key. If the hour belongs to another day than the rollups so far, starts
    /// that day and returns the complete rollups of the previous day (empty at the first call); `None` otherwise.
    ///
    /// # Errors
    /// Returns an error if the key has another form.
    pub fn add_hour_rollup(
        &mut self,
        key: &[u8],
        cell: &RollupDimensions,
        sums: &UsageSums,
    ) -> Result<Option<Self>, RowError> {
        let hash = *key.last_chunk::<HASH_BYTES>().ok_or(RowError::InvalidFormat)?;
        let day = DayNumber::from_hour(cell.hour);
        let earlier =
            (day != self.day).then(|| std::mem::replace(self, Self { day, cells: BTreeMap::new() }));
        match self.cells.get_mut(&hash) {
            Some((_, day_sums)) => day_sums.add(sums),
            None => {
                let cell = RollupDimensions { hour: day.first_hour(), ..cell.clone() };
                self.cells.insert(hash, (cell, sums.clone()));
            }
        }
        Ok(earlier)
    }

    /// Returns the rollups of the day.
    pub fn rollups(&self) -> impl Iterator<Item = &(RollupDimensions, UsageSums)> {
        self.cells.values()
    }

    /// Returns the row key, the dimensions and the sums of each rollup of the day.
    pub fn keyed_rollups(&self) -> impl Iterator<Item = (Vec<u8>, &RollupDimensions, &UsageSums)> {
        self.cells.iter().map(|(hash, (cell, sums))| {
            let mut key = day_key_prefix(&cell.account, self.day);
            key.extend_from_slice(hash);
            (key, cell, sums)
        })
    }
}
