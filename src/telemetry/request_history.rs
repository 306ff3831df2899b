//! History of the ended exchanges that pages of operators show. Its memory is bounded.

use super::AccessRecord;
use super::first_token_history::FirstTokenHistory;
use super::outcome_history::{OpenStreamCounter, OutcomeHistory};
use super::recent_requests::RecentRequests;

/// History of the ended exchanges.
#[derive(Default)]
pub struct RequestHistory {
    /// Times to the first token of the last hour.
    pub first_tokens: FirstTokenHistory,
    /// Outcomes of the last minutes.
    pub outcomes: OutcomeHistory,
    /// Open streams.
    pub open_streams: OpenStreamCounter,
    /// Routes of the last requests.
    pub requests: RecentRequests,
}

impl RequestHistory {
    /// Records an ended exchange.
    pub fn record(&self, record: &AccessRecord, unix_seconds: u64) {
        self.first_tokens.record(record, unix_seconds);
        self.outcomes.record(record, unix_seconds);
        self.requests.record(record, unix_seconds);
    }
}
