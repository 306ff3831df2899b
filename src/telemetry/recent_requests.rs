//! Routes of the last requests: which providers were asked, and how each attempt ended. Neither text of clients nor
//! the name of a key is stored.

use super::request_id::RequestId;
use super::{AccessRecord, SessionAffinityOutcome};
use parking_lot::Mutex;
use penstock_core::WorkDone;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of requests in the history.
pub const MAX_REQUESTS: usize = 1_000;

/// Route of one request.
#[derive(Clone, Debug)]
pub struct RecentRequest {
    /// Request id.
    pub id: RequestId,
    /// Time of the end, Unix seconds.
    pub at: u64,
    /// Model of the catalogue.
    pub model: Option<Box<str>>,
    /// Name of the flavor.
    pub flavor: Option<&'static str>,
    /// Provider that answered the request; `None` if none did.
    pub provider: Option<Box<str>>,
    /// Name of the outcome.
    pub outcome: &'static str,
    /// Provider, outcome and duration of each attempt.
    pub attempts: Box<[(Box<str>, &'static str, Duration)]>,
    /// Time to the first token of a streamed answer.
    pub first_token: Option<Duration>,
    /// Name of the outcome of the session affinity; `None` if the request has no session.
    pub session: Option<&'static str>,
    /// Input tokens, if the answer has a usage.
    pub input_tokens: Option<u64>,
}

/// Last requests that were sent to providers.
#[derive(Default)]
pub struct RecentRequests(Mutex<VecDeque<RecentRequest>>);

impl RecentRequests {
    /// Records an ended exchange, if it was sent to a provider.
    pub fn record(&self, record: &AccessRecord, unix_seconds: u64) {
        if record.attempts.is_empty() {
            return;
        }
        let attempts = record.attempts.iter();
        let request = RecentRequest {
            id: record.id,
            at: unix_seconds,
            model: record.model.clone(),
            flavor: record.flavor,
            provider: record.provider.clone(),
            outcome: record.outcome.name(),
            attempts: attempts.map(|one| (one.provider.clone(), one.outcome, one.duration)).collect(),
            first_token: record.first_token,
            session: record.session.map(SessionAffinityOutcome::name),
            input_tokens: record.done.as_ref().and_then(WorkDone::usage).map(|usage| usage.input),
        };
        let mut requests = self.0.lock();
        if requests.len() >= MAX_REQUESTS {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Returns the request with this id, if it is still in the history.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<RecentRequest> {
        self.0.lock().iter().rev().find(|request| request.id.as_str() == id).cloned()
    }
}
