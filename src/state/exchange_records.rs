//! Records of ended exchanges.

use super::AppState;
use crate::telemetry::AccessRecord;
use std::time::Instant;

impl AppState {
    /// Records an ended exchange: its log line, its metrics, and its row in the history.
    pub fn record_exchange(&self, record: &AccessRecord, started: Instant) {
        let took = started.elapsed();
        self.metrics.record_exchange(record, took);
        self.history.record(record, self.clock.unix_seconds());
        crate::telemetry::log::log_exchange(record, took);
    }
}
