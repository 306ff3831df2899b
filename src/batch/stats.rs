//! Statistics of open batches for metrics, and a log event for each batch that ends.

use super::context::BatchContext;
use super::{BatchManager, api_object};
use crate::telemetry::batches::BatchTotals;
use penstock_storage::batches::{BatchRecord, BatchState};

impl BatchManager {
    /// Computes the statistics of the batches of this process at `now`, in Unix seconds.
    #[must_use]
    pub fn stats(&self, now: u64) -> BatchTotals {
        let mut totals =
            BatchTotals { lines_in_flight: self.scheduler.in_flight(), ..BatchTotals::default() };
        for running in self.running.lock().values() {
            let record = running.published.borrow();
            // The lines of a slice are counted with its batch.
            if record.state.is_final() || record.slice.is_some() {
                continue;
            }
            if record.background.is_some() {
                let index = usize::from(record.state == BatchState::InProgress);
                if let Some(count) = totals.background.get_mut(index) {
                    *count += 1;
                }
                continue;
            }
            let waits = record.scheduled.is_some_and(|hour| hour > now);
            let index = match (record.state, waits) {
                (BatchState::Validating, _) => 0,
                (_, false) => 1,
                (_, true) => 2,
            };
            if let Some(count) = totals.open.get_mut(index) {
                *count += 1;
            }
            let counts = &record.counts;
            totals.lines_without_result +=
                u64::from(counts.total.saturating_sub(counts.completed + counts.failed));
            if !waits {
                let since = record.scheduled.unwrap_or(record.created_ms / 1_000);
                totals.oldest_age_seconds = totals.oldest_age_seconds.max(now.saturating_sub(since));
            }
        }
        totals
    }

    /// Logs the end of a batch and counts it.
    pub(super) fn log_end(&self, context: &BatchContext, record: &BatchRecord) {
        let state = api_object::lifecycle_state(record.state).name();
        let counts = &record.counts;
        context.metrics.batches.count_ended_batch(state, counts.cancelled, counts.expired);
        let number = |count: u32| count.to_string();
        let why = record.errors.first().map_or("", |error| error.code.as_str());
        tracing::info!(
            name: "batch_ended",
            batch = record.id,
            key = record.key,
            status = state,
            why,
            lines = number(counts.total),
            completed = number(counts.completed),
            failed = number(counts.failed),
        );
    }

    /// Logs the end of a background response and counts it.
    pub(super) fn log_background_response_end(&self, context: &BatchContext, record: &BatchRecord) {
        let state = api_object::lifecycle_state(record.state).name();
        context.metrics.batches.count_background_response(state);
        tracing::info!(
            name: "background_response_ended",
            id = &*record.id,
            key = &*record.key,
            status = state,
        );
    }
}
