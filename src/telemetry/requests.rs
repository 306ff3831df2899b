//! Metrics of the outcomes of requests and attempts.

use super::access_record::{AccessRecord, ExchangeKind, ExchangeOutcome};
use super::metrics::{NO_VALUE, register_counter, register_histogram};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry, Result};
use std::sync::OnceLock;
use std::time::Duration;

/// Histogram buckets for the time that the gateway itself takes, in seconds.
const OVERHEAD_BUCKETS: [f64; 11] =
    [0.000_025, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.5];

/// Counters of requests.
pub(super) struct RequestMetrics {
    ended: IntCounterVec,
    lines: IntCounterVec,
    overhead: HistogramVec,
    attempts: IntCounterVec,
    limited: IntCounterVec,
    sessions: IntCounterVec,
}

/// Series of the most frequent outcomes of one endpoint, model and provider. Each is looked up once, and created with
/// its first value.
#[derive(Default)]
pub(super) struct CommonCounters {
    /// Requests that were answered completely with status 200, without batch lines and background attempts that may be
    /// sent again.
    ended: OnceLock<IntCounter>,
    overhead: OnceLock<Histogram>,
    /// Successful attempts.
    attempt: OnceLock<IntCounter>,
    /// Answers to requests with a session. The index is the discriminant of
    /// [`SessionAffinityOutcome`](super::SessionAffinityOutcome).
    sessions: [OnceLock<IntCounter>; 3],
}

impl RequestMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        Ok(Self {
            ended: register_counter(
                r,
                "penstock_requests_total",
                "Requests by endpoint, model of the catalogue (none where no model was found), outcome, status and work (request, or batch: a line of a batch, or a failed attempt of a background response that may be sent again).",
                &["endpoint", "model", "outcome", "status", "work"],
            )?,
            lines: register_counter(
                r,
                "penstock_batch_lines_total",
                "Requests that were lines of batches, by endpoint and outcome; yielded lines are sent again.",
                &["endpoint", "outcome"],
            )?,
            overhead: register_histogram(
                r,
                "penstock_overhead_seconds",
                "Time of a request outside of queues and of its attempts at providers.",
                &OVERHEAD_BUCKETS,
                &["endpoint"],
            )?,
            attempts: register_counter(
                r,
                "penstock_attempts_total",
                "Attempts by provider and outcome (ok, left, or why they failed).",
                &["provider", "outcome"],
            )?,
            limited: register_counter(
                r,
                "penstock_limited_total",
                "Requests refused by a limit or a budget, by its name and its owner.",
                &["limit", "of"],
            )?,
            sessions: register_counter(
                r,
                "penstock_session_requests_total",
                "Answered requests of conversations by model and outcome: new, stayed (at the offer that answered last) or moved.",
                &["model", "outcome"],
            )?,
        })
    }

    /// Counts an ended exchange. `common` belongs to the endpoint, model and provider of the record.
    pub(super) fn count_ended_exchange(
        &self,
        record: &AccessRecord,
        took: Duration,
        common: &CommonCounters,
    ) {
        let mut status = itoa::Buffer::new();
        let is_request = record.kind == ExchangeKind::Request;
        let work = if is_request { "request" } else { "batch" };
        let model = record.model.as_deref().unwrap_or(NO_VALUE);
        let is_plain = record.outcome == ExchangeOutcome::Ok && record.status == 200 && is_request;
        let status = status.format(record.status);
        let ended = || {
            let labels = [record.endpoint, model, record.outcome.name(), status, work];
            self.ended.with_label_values(&labels)
        };
        if is_plain {
            common.ended.get_or_init(ended).inc()
        } else {
            ended().inc()
        }
        if record.kind == ExchangeKind::BatchLine {
            self.lines.with_label_values(&[record.endpoint, record.outcome.name()]).inc();
        }
        let overhead = common.overhead.get_or_init(|| self.overhead.with_label_values(&[record.endpoint]));
        overhead.observe(record.gateway_time(took).as_secs_f64());
        if let Some(session) = record.session {
            let labelled = || self.sessions.with_label_values(&[model, session.name()]);
            match common.sessions.get(session as usize) {
                Some(series) => series.get_or_init(labelled).inc(),
                None => labelled().inc(),
            }
        }
        for note in &record.attempts {
            let labelled = || self.attempts.with_label_values(&[&*note.provider, note.outcome]);
            let is_answer = note.outcome == "ok" && record.provider.as_ref() == Some(&note.provider);
            if is_answer { common.attempt.get_or_init(labelled).inc() } else { labelled().inc() }
        }
    }

    /// Counts a request that a limit or a budget refused. `limit` is the name of the limit; `owner` is `key` or
    /// `account`.
    pub(super) fn count_limit_refusal(&self, limit: &str, owner: &str) {
        self.limited.with_label_values(&[limit, owner]).inc();
    }

    /// Creates those series of a provider that alerts need, with the value 0, before their first events.
    pub(super) fn create_provider_series(&self, provider: &str) {
        for outcome in ["ok", "credentials"] {
            self.attempts.with_label_values(&[provider, outcome]).inc_by(0);
        }
    }
}
