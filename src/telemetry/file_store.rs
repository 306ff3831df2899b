//! Metrics of the bucket with the contents of files.

use super::metrics::{register_counter, register_gauge};
use penstock_object_storage::RequestCount;
use prometheus::{IntCounterVec, IntGaugeVec, Registry, Result};

/// State of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketSnapshot {
    /// True if the bucket can be used.
    pub is_available: bool,
    /// Requests since the start, by method and outcome.
    pub requests: Vec<RequestCount>,
}

/// Metrics of the bucket. Without a bucket, they have no series.
pub(super) struct BucketMetrics {
    up: IntGaugeVec,
    requests: IntCounterVec,
}

impl BucketMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self> {
        Ok(Self {
            up: register_gauge(
                r,
                "penstock_file_store_up",
                "1 if the bucket of `files.store` answered the last request, 0 if not; absent without a bucket.",
                &[],
            )?,
            requests: register_counter(
                r,
                "penstock_file_store_requests_total",
                "Requests to the bucket of `files.store`, repeated ones included, by method (HEAD counts as GET) and \
                 outcome: ok, not_found, precondition (412 or 409, such as an object of the name that exists), refused, \
                 failed (5xx or 429), unreachable.",
                &["method", "outcome"],
            )?,
        })
    }

    /// Sets the gauge and the counters of the bucket; without a bucket, the gauge has no series.
    pub(super) fn update_gauges(&self, snapshot: Option<&BucketSnapshot>) {
        self.up.reset();
        let Some(snapshot) = snapshot else { return };
        self.up.with_label_values::<&str>(&[]).set(i64::from(snapshot.is_available));
        for request in &snapshot.requests {
            let counter = self.requests.with_label_values(&[request.method, request.outcome]);
            counter.inc_by(request.count.saturating_sub(counter.get()));
        }
    }
}
