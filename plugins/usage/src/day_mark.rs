//! Watermark up to which the day rollups are complete.
//!
//! The rollups of a day are built from the rollups of its hours after the day has ended. The watermark contains the
//! last entry of each chain before the build began. If an entry is added to a day after its build, by whichever version
//! of the gateway, the last entry of its chain is later than the one in the watermark. Then all days from the time of
//! the entry in the watermark on count as incomplete, because the times of a chain's entries never decrease.

use crate::cell::HourNumber;
use crate::day::DayNumber;
use crate::row::{RowError, hour_key_prefix};
use penstock_core::usage_row::{USAGE_ROW_VERSION, UsageRowError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Last entry of a ledger chain when a build of day rollups began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainPosition {
    /// Number of the entry.
    pub seq: u64,
    /// Time of the entry, Unix seconds.
    pub at: u64,
}

/// Progress of the day rollups: the first incomplete day, the last entry of each ledger chain, and a running build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DayRollupWatermark {
    /// First day without complete rollups, provided that no chain has entries after its position in `chains`.
    pub until: DayNumber,
    /// Last entry of each chain when the build began, by the number of the chain.
    pub chains: BTreeMap<u32, ChainPosition>,
    /// Running build; `None` if there is none. Only this build may write day rollups.
    pub build: Option<DayRollupBuild>,
}

/// Running build of day rollups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRollupBuild {
    /// Random id of the build.
    pub id: String,
    /// Time at which the build started, Unix seconds.
    pub started: u64,
}

/// Value of the watermark's row. Earlier versions ignore its members and read it as a rollup without sums.
#[derive(Serialize, Deserialize)]
struct MarkRow {
    v: u32,
    outcome: String,
    until: u32,
    chains: Vec<(u32, ChainPosition)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    build: Option<DayRollupBuild>,
}

/// Returns the key of the watermark's row, which sorts after all rollups of the whole gateway.
#[must_use]
pub fn day_watermark_key() -> Vec<u8> {
    let mut key = hour_key_prefix("", HourNumber(u32::MAX));
    key.extend_from_slice(&[0; 16]);
    key
}

impl DayRollupWatermark {
    /// Encodes the watermark as the value of its row.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let row = MarkRow {
            v: USAGE_ROW_VERSION,
            outcome: "granted".to_owned(),
            until: self.until.0,
            chains: self.chains.iter().map(|(chain, position)| (*chain, *position)).collect(),
            build: self.build.clone(),
        };
        // Numbers and names always serialize.
        serde_json::to_vec(&row).unwrap_or_default()
    }

    /// Decodes the value of the watermark's row.
    ///
    /// # Errors
    /// Returns an error if the value is in an unknown format or of a later version.
    pub fn decode(value: &[u8]) -> Result<Self, RowError> {
        let row = match serde_json::from_slice::<MarkRow>(value) {
            Ok(row) if row.v == USAGE_ROW_VERSION => row,
            _ => return Err(UsageRowError::from_unreadable_row(value).into()),
        };
        let chains = row.chains.into_iter().collect();
        Ok(Self { until: DayNumber(row.until), chains, build: row.build })
    }

    /// Returns the first day without complete rollups. `tips` are the chains with the numbers of their last entries;
    /// `first_time` returns the time of the first entry of a chain that the watermark lacks, in Unix seconds.
    ///
    /// # Errors
    /// Returns the error of `first_time`.
    pub fn first_incomplete_day<E>(
        &self,
        tips: impl IntoIterator<Item = (u32, u64)>,
        mut first_time: impl FnMut(u32) -> Result<u64, E>,
    ) -> Result<DayNumber, E> {
        let mut until = self.until;
        for (chain, seq) in tips {
            let changed_at = match self.chains.get(&chain) {
                Some(position) if position.seq == seq => continue,
                Some(position) => position.at,
                None => first_time(chain)?,
            };
            until = until.min(DayNumber::from_unix(changed_at));
        }
        Ok(until)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{UsageOutcome, UsageSums, decode_row};

    fn mark() -> DayRollupWatermark {
        let chains =
            [(0, ChainPosition { seq: 7, at: 20 * 86_400 }), (3, ChainPosition { seq: 9, at: 5 * 86_400 })];
        let build = Some(DayRollupBuild { id: "b".to_owned(), started: 1 });
        DayRollupWatermark { until: DayNumber(20), chains: chains.into(), build }
    }

    #[test]
    fn a_mark_survives_a_round_trip_and_is_an_empty_rollup_for_an_earlier_version() {
        let value = mark().encode();
        assert_eq!(DayRollupWatermark::decode(&value), Ok(mark()));
        let (cell, sums) = decode_row(&day_watermark_key(), &value).unwrap();
        assert_eq!((cell.outcome, sums), (UsageOutcome::Granted, UsageSums::default()));
        assert_eq!(crate::day_from_row_key(&day_watermark_key()), Ok(None));
        let with_version = |v: &str| String::from_utf8(value.clone()).unwrap().replace("\"v\":1", v);
        for (v, error) in [("\"v\":2", RowError::NewerVersion), ("\"v\":0", RowError::InvalidFormat)] {
            assert_eq!(DayRollupWatermark::decode(with_version(v).as_bytes()), Err(error), "{v}");
        }
        let other_form = br#"{"v":2,"outcome":"granted","until":"2026-11-29"}"#;
        assert_eq!(DayRollupWatermark::decode(other_form), Err(RowError::NewerVersion));
    }

    #[test]
    fn a_chain_with_later_entries_bounds_the_complete_days() {
        let until = |tips: &[(u32, u64)]| {
            mark()
                .first_incomplete_day(tips.iter().copied(), |chain| Ok::<_, ()>(u64::from(chain) * 86_400))
                .unwrap()
        };
        assert_eq!(until(&[(0, 7), (3, 9)]), DayNumber(20));
        assert_eq!(
            until(&[(0, 8), (3, 9)]),
            DayNumber(20),
            "later entries are not before the day of the mark"
        );
        assert_eq!(until(&[(0, 8), (3, 10)]), DayNumber(5));
        assert_eq!(until(&[(0, 7), (3, 9), (4, 1)]), DayNumber(4), "a chain that the mark does not have");
    }
}
