//! Measured latencies, which are stored across restarts. They are written to the store while requests are served, and
//! are read at startup. At startup, they count as older by the time for which the gateway was down.
//!
//! The store has one row per measured offer and one row for the last hour of each model that was requested. Only rows
//! that changed are written, and of offers a bounded number per round. Rows of offers and models that are no longer
//! configured, and rows that cannot be decoded, are deleted at startup.

use crate::state::AppState;
use crate::state::grid_intensity::flush_intensity;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::offer::OfferState;
use penstock_core::hex;
use penstock_routing::{LastHourStats, LatencyStats};
use penstock_storage::measurements::MeasurementStore;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of rows of offers that are written in one round in the background: about half a megabyte.
const ROUND_ROWS: usize = 1_000;
/// Row name prefixes of offers and of models.
const OFFERS: &str = "o";
const MODELS: &str = "m";

/// Measured statistics with the time at which they were written, by both clocks of the process, in milliseconds.
#[derive(Debug, Serialize, Deserialize)]
struct FigureRow<T> {
    /// Time by the steady clock, which the statistics use.
    steady: u64,
    /// Time by the calendar clock, in milliseconds.
    date: u64,
    figures: T,
}

/// Rows that a flush writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// Bounded number of changed rows of offers and all changed rows of models, while requests are served.
    Round,
    /// All changed rows, before the process ends.
    Everything,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<T> FigureRow<T> {
    fn new(figures: T, clock: ProcessClock) -> Self {
        Self { steady: millis(clock.steady_now()), date: millis(clock.calendar_now()), figures }
    }

    /// Returns the time of writing, by the steady clock of the process that wrote the row, and by the steady clock of
    /// this process.
    fn written_at(&self, clock: ProcessClock) -> (Duration, Duration) {
        // If the clock was set back in between, no downtime is assumed.
        let away = clock.calendar_now().saturating_sub(Duration::from_millis(self.date));
        (Duration::from_millis(self.steady), clock.steady_now().saturating_sub(away))
    }
}

/// Returns the row name of an offer. An offer with another address or another model name is a different offer.
fn row_name(offer: &OfferState) -> String {
    let (offer, base) = (&offer.offer, &offer.offer.provider.base_url);
    let address = format!("{}{}{}", base.tls, base.authority, base.path_prefix);
    let parts = [&*offer.provider.id, offer.model.card.id.as_str(), &*offer.name, &address];
    let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part).chain_update([0]));
    format!("{OFFERS}{}", hex::encode(hash.finalize().iter().take(16)))
}

/// Restores the statistics that were measured before startup. If the store cannot be read, the gateway starts without
/// them.
pub fn restore_latency_records(live: &ConfigSnapshot, store: &MeasurementStore, clock: ProcessClock) {
    let mut unknown = Vec::new();
    let restored = restore_offers(live, store, clock, &mut unknown)
        .and_then(|()| restore_models(live, store, clock, &mut unknown));
    if let Err(error) = restored.and_then(|()| store.delete(&unknown)) {
        tracing::warn!(name: "latency_stats_not_read", why = %error);
    }
}

fn restore_offers(
    live: &ConfigSnapshot,
    store: &MeasurementStore,
    clock: ProcessClock,
    unknown: &mut Vec<String>,
) -> Result<(), penstock_storage::StoreError> {
    let mut rows = read_rows::<LatencyStats>(store, OFFERS, unknown)?;
    if !rows.is_empty() {
        for offer in &live.offers {
            let Some(row) = rows.remove(&row_name(offer)) else { continue };
            let (from, to) = row.written_at(clock);
            let figures = row.figures.convert_clock(from, to);
            offer.latency_stats_version.store(figures.revision(), Ordering::Relaxed);
            *offer.latency_stats.lock() = figures;
        }
    }
    unknown.extend(rows.into_keys());
    Ok(())
}

fn restore_models(
    live: &ConfigSnapshot,
    store: &MeasurementStore,
    clock: ProcessClock,
    unknown: &mut Vec<String>,
) -> Result<(), penstock_storage::StoreError> {
    for (name, row) in read_rows::<LastHourStats>(store, MODELS, unknown)? {
        let Some(model) = name.get(MODELS.len()..).and_then(|id| live.model(id)) else {
            unknown.push(name);
            continue;
        };
        let (from, to) = row.written_at(clock);
        let hour = row.figures.convert_clock(from, to);
        model.hourly_stats_version.store(hour.revision(), Ordering::Relaxed);
        *model.hourly_stats.lock() = hour;
    }
    Ok(())
}

fn read_rows<T: DeserializeOwned>(
    store: &MeasurementStore,
    prefix: &str,
    unknown: &mut Vec<String>,
) -> Result<HashMap<String, FigureRow<T>>, penstock_storage::StoreError> {
    let mut rows = HashMap::new();
    store.for_each(prefix, |name, row: Option<FigureRow<T>>| match row {
        Some(row) => drop(rows.insert(name, row)),
        None => unknown.push(name),
    })?;
    Ok(rows)
}

/// Writes the statistics that changed since they were last written, as far as `extent` says, and the intensities of the
/// grids; blocks.
pub fn flush_latency_records(app: &AppState, extent: FlushScope) {
    flush_intensity(app);
    let live = app.config_snapshot();
    let most = match extent {
        FlushScope::Round => ROUND_ROWS,
        FlushScope::Everything => usize::MAX,
    };
    let mut offers = Vec::new();
    // Each round starts at another offset, so that all rows are written eventually even if many rows change.
    let count = live.offers.len().max(1);
    let first = usize::try_from(app.clock.unix_seconds()).unwrap_or(0).wrapping_mul(ROUND_ROWS) % count;
    for offer in live.offers.iter().cycle().skip(first).take(live.offers.len()) {
        if offers.len() >= most {
            break;
        }
        let figures = offer.latency_stats.lock();
        if mark_if_changed(&offer.latency_stats_version, figures.revision()) {
            let row = FigureRow::new(figures.clone(), app.clock);
            drop(figures);
            offers.push((row_name(offer), row));
        }
    }
    let mut models = Vec::new();
    for model in live
        .models()
        .filter(|model| mark_if_changed(&model.hourly_stats_version, model.hourly_stats.lock().revision()))
    {
        let row = FigureRow::new(model.hourly_stats.lock().clone(), app.clock);
        models.push((format!("{MODELS}{}", model.model.card.id), row));
    }
    let store = &app.stores.measurements;
    let written = store.put(&offers).and_then(|()| store.put(&models));
    if let Err(error) = written {
        tracing::warn!(name: "latency_stats_not_written", why = %error);
    }
}

/// Returns true if the stamp differs from the one that was written last, and records it as written. If the store then
/// fails to write the row, the row is written after its next change.
fn mark_if_changed(written_stamp: &AtomicU64, stamp: u64) -> bool {
    stamp != 0 && written_stamp.swap(stamp, Ordering::Relaxed) != stamp
}
