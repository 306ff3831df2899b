//! Metrics of batches and their lines.

use super::metrics::{register, register_counter, register_gauge};
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Registry, Result};

/// Statistics of unfinished batches and background responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchTotals {
    /// Open batches by state: validating, in progress, scheduled.
    pub open: [usize; 3],
    /// Number of lines of open batches without a result.
    pub lines_without_result: u64,
    /// Number of lines in flight.
    pub lines_in_flight: usize,
    /// Age in seconds of the oldest open batch. The age of a scheduled batch counts from its scheduled hour; a batch
    /// that still waits for its hour is left out.
    pub oldest_age_seconds: u64,
    /// Unfinished background responses by state: queued, in progress.
    pub background: [usize; 2],
}

/// States of open batches, in the order of [`BatchTotals::open`].
const OPEN_STATES: [&str; 3] = ["validating", "in_progress", "scheduled"];
/// States of unfinished background responses, in the order of [`BatchTotals::background`].
const RESPONSE_STATES: [&str; 2] = ["queued", "in_progress"];

/// Counters and gauges of batches.
pub struct BatchMetrics {
    open: IntGaugeVec,
    ended: IntCounterVec,
    lines: IntCounterVec,
    left: IntGauge,
    working: IntGauge,
    oldest: IntGauge,
    responses: IntGaugeVec,
    responses_ended: IntCounterVec,
}

impl BatchMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let one = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        let batches = Self {
            open: register_gauge(
                r,
                "penstock_batches_open",
                "Batches that have not ended, by state (scheduled: waiting for a greener hour).",
                &["state"],
            )?,
            ended: register_counter(
                r,
                "penstock_batches_ended_total",
                "Batches that ended, by state.",
                &["state"],
            )?,
            lines: register_counter(
                r,
                "penstock_batch_results_total",
                "Lines of batches by outcome (completed, failed, retried, cancelled, expired).",
                &["outcome"],
            )?,
            left: one("penstock_batch_lines_left", "Lines of open batches without a result.")?,
            working: one("penstock_batch_lines_working", "Lines of batches in flight.")?,
            oldest: one(
                "penstock_batch_oldest_seconds",
                "Age of the oldest open batch, from its scheduled hour on if it has one.",
            )?,
            responses: register_gauge(
                r,
                "penstock_background_responses_open",
                "Background responses that have not ended, by state.",
                &["state"],
            )?,
            responses_ended: register_counter(
                r,
                "penstock_background_responses_ended_total",
                "Background responses that ended, by state.",
                &["state"],
            )?,
        };
        for outcome in ["completed", "failed", "retried", "cancelled", "expired"] {
            batches.lines.with_label_values(&[outcome]).inc_by(0);
        }
        for state in ["completed", "failed", "cancelled"] {
            batches.ended.with_label_values(&[state]).inc_by(0);
            batches.responses_ended.with_label_values(&[state]).inc_by(0);
        }
        Ok(batches)
    }

    /// Counts a batch line, by its outcome.
    pub fn count_line(&self, outcome: &str) {
        self.lines.with_label_values(&[outcome]).inc();
    }

    /// Counts an ended batch, and its lines without a result.
    pub fn count_ended_batch(&self, state: &str, cancelled: u32, expired: u32) {
        self.ended.with_label_values(&[state]).inc();
        self.lines.with_label_values(&["cancelled"]).inc_by(cancelled.into());
        self.lines.with_label_values(&["expired"]).inc_by(expired.into());
    }

    /// Counts an ended background response.
    pub fn count_background_response(&self, state: &str) {
        self.responses_ended.with_label_values(&[state]).inc();
    }

    /// Sets the gauges to these totals.
    pub(super) fn update_gauges(&self, totals: &BatchTotals) {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for (state, open) in OPEN_STATES.iter().zip(totals.open) {
            self.open.with_label_values(&[*state]).set(count(open as u64));
        }
        for (state, open) in RESPONSE_STATES.iter().zip(totals.background) {
            self.responses.with_label_values(&[*state]).set(count(open as u64));
        }
        self.left.set(count(totals.lines_without_result));
        self.working.set(count(totals.lines_in_flight as u64));
        self.oldest.set(count(totals.oldest_age_seconds));
    }
}
