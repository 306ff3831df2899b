//! One line of a batch as one exchange: the same filters, the same relay, no
//! socket. Its charge is not entered here but given back with its answer, so that
//! both are written together or neither.

pub use crate::caller::CancelLine;

use crate::caller::{Caller, Line};
use crate::endpoint::{self, Endpoint};
use crate::exchange::{Ended, Exchange};
use crate::house::House;
use crate::keyring::Grant;
use crate::ledger::Ending;
use crate::observe::{Outcome, panics};
use crate::request_id::RequestId;
use bytes::Bytes;
use penstock_contract::{Code, Done, Refusal, Usage};
use penstock_limits::Work;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// When a failed line may be asked again, if nobody said.
const AGAIN: Duration = Duration::from_secs(1);

/// What is asked.
pub struct LineAsk {
    /// The key it is asked with, as it is now.
    pub grant: Arc<Grant>,
    /// Where.
    pub endpoint: &'static dyn Endpoint,
    /// The request's body.
    pub body: Bytes,
    /// Ends it.
    pub cancel: CancelLine,
}

/// What became of it.
pub struct LineDone {
    /// The exchange's name.
    pub request: RequestId,
    /// The status that a client would have been sent.
    pub status: u16,
    /// The body: an answer with both objects, or the error envelope of the dialect.
    pub body: Vec<Bytes>,
    /// The end of its reserve, for [`crate::ledger::Ledger::enter`]; `None` if nothing was set aside.
    pub end: Option<Ending>,
    /// What it used.
    pub usage: Option<Usage>,
    /// It failed for now and may be asked again after this.
    pub retry: Option<Duration>,
    /// It gave its seat to a request at once, or got none to the end: no failure, and to be asked again as if
    /// it never was.
    pub yielded: bool,
    /// What others at work hold of the balance or a budget was in its way: yielded too, and to be asked again once
    /// some of them have ended.
    pub short: bool,
    /// It was ended by its signal, before there was an answer.
    pub cancelled: bool,
}

/// Asks a line. It waits for its seat as long as that takes.
pub async fn line(house: &Arc<House>, ask: LineAsk) -> LineDone {
    let _open = house.open_exchange();
    let mut line = Line::new(ask.body, ask.cancel);
    let dialect = endpoint::dialect(ask.endpoint.path(), false);
    let mut x = Exchange::new(house, Caller::Line(&mut line), dialect, Work::BatchLine);
    x.grant = ask.grant;
    x.record.key = Some(x.grant.public_id.clone());
    x.record.endpoint = ask.endpoint.name();
    x.record.line = true;
    let (mut retry, mut short) = (None, false);
    let mut cancelled = false;
    let answer = panics::caught(pin!(answer(&mut x, ask.endpoint))).await;
    let answer = match answer.unwrap_or_else(|| Err(x.panicked())) {
        Ok(Ended::Written) => Ok(()),
        Ok(Ended::Left) => Err(left(&x)),
        Err(refusal) => Err(Some(refusal)),
    };
    match answer {
        Ok(()) => {}
        Err(None) => cancelled = true,
        Err(Some(refusal)) => {
            retry = again(&refusal);
            short = refusal.held;
            x.refuse(&refusal).await;
        }
    }
    let unseated = x.record.attempts.is_empty() && !x.record.queued.is_zero();
    let yielded = retry.is_some() && (yielded(&x) || unseated || short);
    if yielded {
        x.record.outcome = Outcome::Yielded;
    }
    x.record.end(cancelled, x.caller.body_bytes_sent());
    house.observe(&x.record, x.started);
    let (request, status) = (x.id, x.record.status);
    let usage = x.record.done.as_ref().and_then(Done::usage).copied();
    drop(x);
    let (body, end) = (line.answer(), line.end.take());
    LineDone { request, status, body, end, usage, retry, yielded, short, cancelled }
}

async fn answer(x: &mut Exchange<'_>, endpoint: &dyn Endpoint) -> Result<Ended, Refusal> {
    if !x.grant.good(x.house.clock.unix()) {
        return Err(Refusal::new(Code::InvalidKey));
    }
    x.grant.require(endpoint.scope())?;
    endpoint.handle(x, "").await
}

/// Why a line ended without an answer; `None` if it was cancelled.
fn left(x: &Exchange<'_>) -> Option<Refusal> {
    match &x.caller {
        Caller::Line(line) if line.is_cancelled() => None,
        _ if yielded(x) => Some(Refusal::new(Code::Unavailable).retry_after(1)),
        _ if !x.grant.good(x.house.clock.unix()) => Some(Refusal::new(Code::InvalidKey)),
        _ => Some(Refusal::new(Code::Internal)),
    }
}

fn yielded(x: &Exchange<'_>) -> bool {
    matches!(&x.caller, Caller::Line(line) if line.was_asked_back())
}

/// Whether it is worth asking again, and when.
fn again(refusal: &Refusal) -> Option<Duration> {
    let status = refusal.row().status;
    let after = refusal.retry_after.map_or(AGAIN, |seconds| Duration::from_secs(seconds.into()));
    (status == 429 || status >= 500 || refusal.held).then_some(after)
}
