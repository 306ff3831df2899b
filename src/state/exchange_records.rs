//! Records of ended exchanges.

use super::AppState;
use crate::telemetry::AccessRecord;
use std::time::Instant;

impl AppState {
    /// Records an exchange that has ended, in the metrics, in the request history and in the log.
    pub fn record_exchange(&self, record: &AccessRecord, started: Instant) {
        let took = started.elapsed();
        self.metrics.record_exchange(record, took);
        self.history.record(record, self.clock.unix_seconds());
        crate::telemetry::log::log_exchange(record, took);
    }
}
