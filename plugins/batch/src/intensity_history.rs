//! Carbon intensity of a grid zone in the past hours: for each hour the value that was known in that hour. The values
//! are recorded, because each new forecast replaces the previous one.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of hours that are recorded for a zone, including the current one.
pub const HISTORY_HOURS: u64 = 48;

/// Data source of a carbon intensity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntensitySource {
    /// Forecast of the intensity of the hour.
    Forecast,
    /// Usual intensity in this hour of the day.
    Typical,
    /// Mean intensity of a year.
    Yearly,
}

impl IntensitySource {
    /// Returns the name of the source in responses of the admin API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forecast => "forecast",
            Self::Typical => "typical",
            Self::Yearly => "yearly",
        }
    }
}

/// Carbon intensity of one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntensityRecord {
    /// Grams of CO2e per kWh, location-based.
    pub grams: u32,
    /// Data source of `grams`.
    pub source: IntensitySource,
}

/// Intensity of the last hours of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntensityHistory {
    /// Recorded intensities; the key counts hours since 1970.
    hours: BTreeMap<u64, IntensityRecord>,
}

impl IntensityHistory {
    /// Records the intensity of the current hour, counted since 1970. Drops hours that are too old, and later hours,
    /// which remain when the clock was set back. Returns true if the history changed.
    pub fn record(&mut self, hour: u64, intensity: IntensityRecord) -> bool {
        let first = (hour + 1).saturating_sub(HISTORY_HOURS);
        let before = self.hours.len();
        self.hours.retain(|recorded, _| (first..=hour).contains(recorded));
        let has_dropped = self.hours.len() != before;
        self.hours.insert(hour, intensity) != Some(intensity) || has_dropped
    }

    /// Returns the intensity that was recorded in this hour, counted since 1970; `None` if none is recorded.
    #[must_use]
    pub fn intensity_at(&self, hour: u64) -> Option<IntensityRecord> {
        self.hours.get(&hour).copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW: u64 = 495_000;

    const fn grams(grams: u32) -> IntensityRecord {
        IntensityRecord { grams, source: IntensitySource::Forecast }
    }

    #[test]
    fn the_last_value_of_an_hour_is_recorded_and_old_hours_are_dropped() {
        let mut history = IntensityHistory::default();
        for hour in NOW..NOW + 100 {
            assert!(history.record(hour, grams(1)));
            assert!(!history.record(hour, grams(1)), "unchanged");
            assert!(history.record(hour, grams(2)));
        }
        assert_eq!(history.hours.len() as u64, HISTORY_HOURS);
        assert_eq!((history.intensity_at(NOW + 52), history.intensity_at(NOW + 51)), (Some(grams(2)), None));
        assert_eq!(history.intensity_at(NOW + 99), Some(grams(2)));
    }

    #[test]
    fn a_clock_that_was_set_back_leaves_no_later_hours() {
        let mut history = IntensityHistory::default();
        history.record(NOW + 5, grams(5));
        assert!(history.record(NOW, grams(1)));
        assert_eq!((history.intensity_at(NOW), history.intensity_at(NOW + 5)), (Some(grams(1)), None));
        assert!(!history.record(NOW, grams(1)));
    }

    #[test]
    fn a_stored_history_is_read_again() {
        let mut history = IntensityHistory::default();
        history.record(NOW, IntensityRecord { grams: 31, source: IntensitySource::Yearly });
        let text = serde_json::to_string(&history).unwrap();
        assert_eq!(text, r#"{"hours":{"495000":{"grams":31,"source":"yearly"}}}"#);
        assert_eq!(serde_json::from_str::<IntensityHistory>(&text).unwrap(), history);
    }
}
