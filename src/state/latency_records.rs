//! Measured latencies, which are stored across restarts. They are written to the store while requests are served, and
//! are read at startup. At startup, the downtime of the gateway is added to their age.
//!
//! The store has one row per measured offer and one row for the last hour of each model that was requested. Only rows
//! that changed are written, a bounded number per round. Rows of offers and models that are no longer configured, and
//! rows that cannot be decoded, are deleted at startup.

use crate::state::AppState;
use crate::state::grid_intensity::flush_intensity;
use crate::time::clock::ProcessClock;
use crate::upstream::config_snapshot::{ConfigSnapshot, ModelState};
use crate::upstream::offer::OfferState;
use penstock_core::hex;
use penstock_routing::{LastHourStats, LatencyStats};
use penstock_storage::measurements::MeasurementStore;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum number of rows of offers (about 0.5 MB), and of rows of models (about 2 MB), that are written in one round
/// in the background. It is also the maximum per commit, because commits are limited in size.
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
    /// Limited number of changed rows, while requests are served. The next round continues after the last of them.
    Round,
    /// All changed rows, before the process ends.
    Everything,
}

/// Position at which the next round begins.
#[derive(Debug, Default)]
pub struct FlushCursor {
    offer: AtomicUsize,
    model: AtomicUsize,
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
        // If the calendar clock was set back since the row was written, the downtime counts as 0.
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
            offer.stored_latency_stats_revision.store(figures.revision(), Ordering::Relaxed);
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
        model.stored_hourly_stats_revision.store(hour.revision(), Ordering::Relaxed);
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

/// Writes the statistics that changed since they were last written, in the given scope, and the intensities of the
/// grids; blocks.
pub fn flush_latency_records(app: &AppState, scope: FlushScope) {
    flush_intensity(app);
    let live = app.config_snapshot();
    let most = match scope {
        FlushScope::Round => ROUND_ROWS,
        FlushScope::Everything => usize::MAX,
    };
    let start = &app.latency_round;
    let offers = collect_rows(&live.offers, &start.offer, most, |offer| {
        let figures = {
            let figures = offer.latency_stats.lock();
            mark_if_changed(&offer.stored_latency_stats_revision, figures.revision())
                .then(|| figures.clone())?
        };
        Some((row_name(offer), FigureRow::new(figures, app.clock)))
    });
    let models: Vec<&Arc<ModelState>> = live.models().collect();
    let models = collect_rows(&models, &start.model, most, |model| {
        let hour = {
            let hour = model.hourly_stats.lock();
            mark_if_changed(&model.stored_hourly_stats_revision, hour.revision()).then(|| hour.clone())?
        };
        Some((format!("{MODELS}{}", model.model.card.id), FigureRow::new(hour, app.clock)))
    });
    let store = &app.stores.measurements;
    let offers = offers.chunks(ROUND_ROWS).try_for_each(|rows| store.put(rows));
    let written = offers.and_then(|()| models.chunks(ROUND_ROWS).try_for_each(|rows| store.put(rows)));
    if let Err(error) = written {
        tracing::warn!(name: "latency_stats_not_written", why = %error);
    }
}

/// Calls `to_row` for the elements from `start` on, until it has returned `max_rows`; returns these rows. Then
/// moves `start` after the last element that was passed to `to_row`. So all rows are written eventually, even if many
/// change all the time.
fn collect_rows<E, R>(
    elements: &[E],
    start: &AtomicUsize,
    max_rows: usize,
    to_row: impl Fn(&E) -> Option<R>,
) -> Vec<R> {
    let first = start.load(Ordering::Relaxed).min(elements.len());
    let (before, after) = elements.split_at(first);
    let (mut rows, mut passed) = (Vec::new(), 0);
    for element in after.iter().chain(before) {
        if rows.len() >= max_rows {
            break;
        }
        passed += 1;
        rows.extend(to_row(element));
    }
    start.store((first + passed) % elements.len().max(1), Ordering::Relaxed);
    rows
}

/// Returns true if the revision of the statistics (`stamp`) differs from that of the last written row, and records the
/// row as written. Returns false for revision 0, which has no measurements. If the store then fails to write the row,
/// the row is written only after its next change.
fn mark_if_changed(written_stamp: &AtomicU64, stamp: u64) -> bool {
    stamp != 0 && written_stamp.swap(stamp, Ordering::Relaxed) != stamp
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn rounds_pass_all_rows_whatever_their_number_although_all_change_all_the_time() {
        for count in [0, 1, 999, ROUND_ROWS, 1_001, 2_000, 2_500, 3_000, 10_000] {
            let (elements, start) = ((0..count).collect::<Vec<usize>>(), AtomicUsize::new(0));
            let mut written = vec![0; count];
            let rounds = count.div_ceil(ROUND_ROWS);
            for _ in 0..rounds {
                let rows = collect_rows(&elements, &start, ROUND_ROWS, |number| Some(*number));
                assert_eq!(rows.len(), count.min(ROUND_ROWS));
                rows.into_iter().for_each(|number| written[number] += 1);
            }
            assert!(written.iter().all(|times| (1..=2).contains(times)), "{count}");
        }
    }

    #[test]
    fn unchanged_rows_do_not_end_a_round_and_a_shorter_list_begins_again() {
        let start = AtomicUsize::new(0);
        let odd = |number: &usize| (number % 2 == 1).then_some(*number);
        let elements: Vec<usize> = (0..10).collect();
        assert_eq!(collect_rows(&elements, &start, 3, odd), [1, 3, 5]);
        assert_eq!(collect_rows(&elements, &start, 3, odd), [7, 9, 1]);
        assert_eq!(collect_rows(&elements, &start, usize::MAX, odd), [3, 5, 7, 9, 1]);
        assert_eq!(collect_rows(&elements, &start, 2, odd), [3, 5]);
        assert_eq!(collect_rows(&elements[..4], &start, 3, odd), [1, 3]);
    }
}
