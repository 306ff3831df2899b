//! Metrics of admission control.

use super::metrics::{register, register_counter, register_gauge, register_histogram};
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, Result};
use std::time::Duration;

/// State of admission control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionSnapshot {
    /// Number of requests in flight.
    pub requests: usize,
    /// Bytes that the requests in flight hold.
    pub bytes: usize,
    /// Number of waiting requests.
    pub waiting: usize,
}

/// Histogram buckets for the time in a queue, in seconds.
const QUEUE_WAIT_BUCKETS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0];

/// Counters and gauges of admission control.
pub struct AdmissionMetrics {
    admitted: IntGauge,
    held: IntGauge,
    waiting: IntGaugeVec,
    waits: HistogramVec,
    refused: IntCounterVec,
    panics: IntCounter,
}

impl AdmissionMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        let one = |name: &str, help: &str| register(r, IntGauge::new(name, help)?);
        Ok(Self {
            admitted: one(
                "penstock_requests_admitted",
                "Requests that count against `overload.requests`: with a body, begun and not ended.",
            )?,
            held: one(
                "penstock_held_bytes",
                "Bytes of request bodies and unstreamed answers in memory, against `overload.bytes`.",
            )?,
            waiting: register_gauge(
                r,
                "penstock_queue_waiting",
                "Requests that wait for a permit, by queue (process, provider; batch work at a provider included).",
                &["queue"],
            )?,
            waits: register_histogram(
                r,
                "penstock_queue_wait_seconds",
                "Time of requests that had to wait for a permit, by queue; the others are not counted.",
                &QUEUE_WAIT_BUCKETS,
                &["queue"],
            )?,
            refused: register_counter(
                r,
                "penstock_overload_refused_total",
                "Requests refused under overload: queue full (queue), wait timed out (process, \
                 provider), too many bytes (bytes), batch line gave way to requests (batch).",
                &["reason"],
            )?,
            panics: register(
                r,
                IntCounter::new("penstock_panics_total", "Requests that ended in a bug of the gateway.")?,
            )?,
        })
    }

    /// Records the time for which a request waited in a queue.
    pub(super) fn record_wait(&self, queue: &str, waited: Duration) {
        self.waits.with_label_values(&[queue]).observe(waited.as_secs_f64());
    }

    /// Counts a panic.
    pub(super) fn record_panic(&self) {
        self.panics.inc();
    }

    /// Sets the gauges of admission control, and the counters of refusals by reason.
    pub(super) fn update_gauges(
        &self,
        snapshot: &AdmissionSnapshot,
        at_providers: u32,
        refusals: impl Iterator<Item = (&'static str, u64)>,
    ) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.admitted.set(count(snapshot.requests));
        self.held.set(count(snapshot.bytes));
        self.waiting.with_label_values(&["process"]).set(count(snapshot.waiting));
        self.waiting.with_label_values(&["provider"]).set(i64::from(at_providers));
        for (reason, refused) in refusals {
            let counter = self.refused.with_label_values(&[reason]);
            counter.inc_by(refused.saturating_sub(counter.get()));
        }
    }
}
