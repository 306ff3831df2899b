//! Batch line as one exchange: the same phases of Pingora's proxy as a client's request, without a socket. Its charge
//! is returned with its response instead of recorded here, so that both are written together or neither.

pub use crate::caller::CancelLine;

use crate::caller::{Line, LineReport};
use crate::endpoint::Endpoint;
use crate::exchange::ExchangeState;
use crate::house::House;
use crate::keyring::Grant;
use crate::ledger::Ending;
use crate::observe::Outcome;
use crate::proxy::LineSession;
use crate::request_id::RequestId;
use bytes::Bytes;
use penstock_contract::{Code, Done, Refusal, Usage};
use pingora_core::apps::HttpServerApp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Default time before a failed line is retried.
const AGAIN: Duration = Duration::from_secs(1);

/// Request of a batch line.
pub struct LineAsk {
    /// Key of the batch, in its current state.
    pub grant: Arc<Grant>,
    /// Endpoint of the request.
    pub endpoint: &'static dyn Endpoint,
    /// Request body.
    pub body: Bytes,
    /// Cancellation signal.
    pub cancel: CancelLine,
}

/// Result of a batch line.
pub struct LineDone {
    /// Request ID.
    pub request: RequestId,
    /// Status that a client would have received.
    pub status: u16,
    /// Body: a response with both objects, or the error envelope of the dialect.
    pub body: Vec<Bytes>,
    /// End of the reservation, for [`crate::ledger::Ledger::enter`]; `None` if nothing was reserved.
    pub end: Option<Ending>,
    /// Token usage.
    pub usage: Option<Usage>,
    /// Time before a retry, if the failure is temporary.
    pub retry: Option<Duration>,
    /// True if the line yielded its permit to an online request, or never got one: this is no failure and does not
    /// count as an attempt.
    pub yielded: bool,
    /// True if balance or budget is held by other requests: the line also yielded, and is retried once
    /// some of them have ended.
    pub short: bool,
    /// True if the line was cancelled before there was a response.
    pub cancelled: bool,
}

/// Runs a line. It waits for its permit without a limit.
pub async fn line(house: &Arc<House>, ask: LineAsk) -> LineDone {
    let _open = house.open_exchange();
    let line = Line::of_batch(ask.grant, ask.cancel);
    // The batch cancels its lines itself, so the shutdown signal of the listeners is not used.
    let (_stop, stopping) = watch::channel(false);
    if let Ok(session) = LineSession::start(line.clone(), ask.endpoint.path(), ask.body) {
        house.proxy().process_new_http(session, &stopping).await;
    }
    let report = line.take_report().unwrap_or_else(|| LineReport {
        request: RequestId::random(),
        status: 500,
        usage: None,
        refusal: Some(Refusal::new(Code::Internal)),
        yielded: false,
        cancelled: false,
    });
    LineDone {
        request: report.request,
        status: report.status,
        body: line.take_response(),
        end: line.take_end(),
        usage: report.usage,
        retry: report.refusal.as_ref().and_then(again),
        yielded: report.yielded,
        short: report.refusal.is_some_and(|refusal| refusal.held),
        cancelled: report.cancelled,
    }
}

/// Refusal of a line that ended without a response; `None` if it was cancelled.
pub(crate) fn left(line: &Line, state: &ExchangeState, now: u64) -> Option<Refusal> {
    if line.is_cancelled() {
        None
    } else if line.was_asked_back() {
        Some(Refusal::new(Code::Unavailable).retry_after(1))
    } else if !state.grant.good(now) {
        Some(Refusal::new(Code::InvalidKey))
    } else {
        Some(Refusal::new(Code::Internal))
    }
}

/// Reports the end of a line to the batch, and marks its record if it yielded its permit.
pub(crate) fn report(line: &Line, state: &mut ExchangeState, refusal: Option<Refusal>, cancelled: bool) {
    let (retry, short) = (refusal.as_ref().and_then(again), refusal.as_ref().is_some_and(|why| why.held));
    let record = &mut state.record;
    let without_permit = record.attempts.is_empty() && !record.queued.is_zero();
    let yielded = retry.is_some() && (line.was_asked_back() || without_permit || short);
    if yielded {
        record.outcome = Outcome::Yielded;
    }
    line.set_report(LineReport {
        request: state.id,
        status: record.status,
        usage: record.done.as_ref().and_then(Done::usage).copied(),
        refusal,
        yielded,
        cancelled,
    });
}

/// Returns the time before a retry, if a retry makes sense.
fn again(refusal: &Refusal) -> Option<Duration> {
    let status = refusal.row().status;
    let after = refusal.retry_after.map_or(AGAIN, |seconds| Duration::from_secs(seconds.into()));
    (status == 429 || status >= 500 || refusal.held).then_some(after)
}
