//! Number of requests to a bucket, by method and outcome.

use http::{Method, StatusCode};
use std::sync::atomic::{AtomicU64, Ordering};

const METHODS: [&str; 4] = ["GET", "PUT", "POST", "DELETE"];
const OUTCOMES: [&str; 6] = ["ok", "not_found", "precondition", "refused", "failed", "unreachable"];

/// Number of requests with one method and one outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCount {
    /// Method: `GET`, which includes `HEAD`, `PUT`, `POST` or `DELETE`.
    pub method: &'static str,
    /// Outcome: `ok`, `not_found`, `precondition` (409, 412), `failed` (429, 5xx), `refused` (any other status) or
    /// `unreachable`.
    pub outcome: &'static str,
    /// Number of requests, including retries.
    pub count: u64,
}

/// Counters of requests.
#[derive(Debug, Default)]
pub struct RequestCounters([[AtomicU64; OUTCOMES.len()]; METHODS.len()]);

impl RequestCounters {
    /// Counts a request; `status` is `None` if there was no response.
    pub fn record(&self, method: &Method, status: Option<StatusCode>) {
        let method = METHODS.iter().position(|name| *name == method.as_str()).unwrap_or(0);
        let outcome = match status {
            Some(status) if status.is_success() => 0,
            Some(StatusCode::NOT_FOUND) => 1,
            Some(StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT) => 2,
            Some(status) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => 4,
            Some(_) => 3,
            None => 5,
        };
        if let Some(counter) = self.0.get(method).and_then(|outcomes| outcomes.get(outcome)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns all counts, also those that are zero.
    pub fn counts(&self) -> Vec<RequestCount> {
        let rows = METHODS.iter().zip(&self.0);
        let cells = rows.flat_map(|(method, row)| OUTCOMES.iter().zip(row).map(move |cell| (*method, cell)));
        cells
            .map(|(method, (outcome, counter))| RequestCount {
                method,
                outcome,
                count: counter.load(Ordering::Relaxed),
            })
            .collect()
    }
}
