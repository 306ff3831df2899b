//! Carbon intensity of the electricity grids of the providers: that of the present hour from the configuration, and the
//! history of the hours before. The history is written with the measured latencies, one row for each grid zone, and
//! survives a restart.

use super::AppState;
use crate::config::settings::Provider;
use crate::upstream::config_snapshot::ConfigSnapshot;
use parking_lot::Mutex;
use penstock_batch::intensity_history::{IntensityHistory, IntensityRecord, IntensitySource};
use penstock_storage::measurements::MeasurementStore;
use rust_decimal::prelude::ToPrimitive;
use std::collections::BTreeMap;

const HOUR_SECONDS: u64 = 3_600;
/// Prefix of the names of the rows that store the history of a grid zone.
const ZONES: &str = "g";

/// Recorded intensities of the grid zones of the configured providers.
#[derive(Debug, Default)]
pub struct GridRecords(Mutex<BTreeMap<String, ZoneRecord>>);

#[derive(Debug, Default)]
struct ZoneRecord {
    history: IntensityHistory,
    /// True if the history has changed since its row in the store was written.
    is_changed: bool,
}

/// Returns the grid zone of a provider: its own id, if the configuration has a zone of this name, else the code of its
/// country.
pub fn grid_zone_of<'a>(live: &ConfigSnapshot, provider: &'a Provider) -> &'a str {
    if live.settings.grid.zones.contains_key(&*provider.id) { &provider.id } else { &provider.location.code }
}

/// Returns the configured intensity at a provider for an hour (number of hours since 1970): the forecast, else the
/// typical value of that hour, else the mean of the year.
pub fn configured_intensity(live: &ConfigSnapshot, provider: &Provider, hour: u64) -> IntensityRecord {
    let zone = live.settings.grid.zones.get(grid_zone_of(live, provider));
    zone.and_then(|zone| zone.intensity_at(hour)).unwrap_or_else(|| IntensityRecord {
        grams: provider.location.grid.g_per_kwh.round().to_u32().unwrap_or(0),
        source: IntensitySource::Yearly,
    })
}

impl GridRecords {
    /// Reads the histories of an earlier process, and deletes those of zones without providers. If the store cannot be
    /// read, the histories start empty.
    pub fn restore(live: &ConfigSnapshot, store: &MeasurementStore) -> Self {
        let (mut records, mut unknown) = (BTreeMap::new(), Vec::new());
        let read = store.for_each(ZONES, |name, history: Option<IntensityHistory>| {
            let zone = name.get(ZONES.len()..).unwrap_or_default();
            let is_used = live.providers.iter().any(|one| grid_zone_of(live, &one.provider) == zone);
            match history.filter(|_| is_used) {
                Some(history) => {
                    records.insert(zone.to_owned(), ZoneRecord { history, is_changed: false });
                }
                None => unknown.push(name),
            }
        });
        if let Err(error) = read.and_then(|()| store.delete(&unknown)) {
            tracing::warn!(name: "latency_stats_not_read", why = %error);
        }
        Self(Mutex::new(records))
    }

    /// Records the intensity of the current hour in the zone of each provider, and removes zones without providers.
    pub fn record_current_hour(&self, live: &ConfigSnapshot, now: u64) {
        let hour = now / HOUR_SECONDS;
        let mut present = BTreeMap::new();
        for provider in live.providers.iter().map(|one| &one.provider) {
            present
                .entry(grid_zone_of(live, provider))
                .or_insert_with(|| configured_intensity(live, provider, hour));
        }
        let mut records = self.0.lock();
        records.retain(|zone, _| present.contains_key(&**zone));
        for (zone, intensity) in present {
            let record = records.entry(zone.to_owned()).or_default();
            record.is_changed |= record.history.record(hour, intensity);
        }
    }

    /// Returns the intensity that was recorded for an hour (number of hours since 1970); `None` without a record.
    pub fn recorded_intensity(&self, zone: &str, hour: u64) -> Option<IntensityRecord> {
        self.0.lock().get(zone)?.history.intensity_at(hour)
    }

    /// Removes and returns the rows that changed since the last call.
    fn take_changed(&self) -> Vec<(String, IntensityHistory)> {
        let mut records = self.0.lock();
        let take = |(zone, record): (&String, &mut ZoneRecord)| {
            let is_changed = std::mem::take(&mut record.is_changed);
            is_changed.then(|| (format!("{ZONES}{zone}"), record.history.clone()))
        };
        records.iter_mut().filter_map(take).collect()
    }
}

/// Records the present hour and writes the histories that changed; blocks. Rows that the store failed to write are
/// written at their next change.
pub fn flush_intensity(app: &AppState) {
    app.grid_records.record_current_hour(&app.config_snapshot(), app.clock.unix_seconds());
    if let Err(error) = app.stores.measurements.put(&app.grid_records.take_changed()) {
        tracing::warn!(name: "latency_stats_not_written", why = %error);
    }
}
