//! Execution of a batch line as an exchange: it passes the same phases of Pingora's proxy as the request of a client,
//! but has no socket. Its charge is not recorded here but returned with its response, so that both are recorded
//! together or not at all.

use crate::batch::{LineDisposition, LineExecutor, LineRequest, LineResponse};
use crate::proxy::downstream::{LineDownstream, LineReport};
use crate::proxy::exchange::ExchangeState;
use crate::proxy::{GatewayProxy, InProcessSession};
use crate::state::AppState;
use crate::telemetry::request_id::RequestId;
use crate::telemetry::{ExchangeKind, ExchangeOutcome};
use async_trait::async_trait;
use penstock_core::{ApiError, ErrorCode, WorkDone};
use pingora_core::apps::HttpServerApp;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::watch;

/// Time before a failed line is retried, if the refusal states none.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// Executor of batch lines through the proxy.
pub struct BatchLineExecutor {
    app: Weak<AppState>,
    proxy: GatewayProxy,
}

impl BatchLineExecutor {
    /// Creates an executor that sends batch lines through `proxy`.
    pub(super) const fn new(app: Weak<AppState>, proxy: GatewayProxy) -> Self {
        Self { app, proxy }
    }
}

#[async_trait]
impl LineExecutor for BatchLineExecutor {
    async fn execute(&self, ask: LineRequest) -> LineResponse {
        let app = self.app.upgrade();
        let _in_flight = app.as_ref().map(|app| app.track_exchange());
        execute(&self.proxy, ask).await
    }
}

async fn execute(proxy: &GatewayProxy, ask: LineRequest) -> LineResponse {
    let line = LineDownstream::for_batch(ask.principal, (ask.cancel, ask.interrupted), ask.origin);
    // The line gets a shutdown signal that never fires, and not that of the listeners: at a shutdown the batch itself
    // cancels its lines.
    let (_stop, stopping) = watch::channel(false);
    if let Ok(session) = InProcessSession::for_line(line.clone(), ask.path, ask.body) {
        proxy.process_new_http(session, &stopping).await;
    }
    let report = line.take_report().unwrap_or_else(|| LineReport {
        request_id: RequestId::random(),
        status: 500,
        usage: None,
        disposition: LineDisposition::Retry(DEFAULT_RETRY),
    });
    LineResponse {
        request_id: report.request_id,
        status: report.status,
        body: line.take_response(),
        hold_end: line.take_hold_outcome(),
        usage: report.usage,
        disposition: report.disposition,
    }
}

/// Returns the refusal of a line that ended without a response: its permit was recalled, its key is no longer valid, or
/// the gateway failed. `None` if the line was cancelled.
pub(crate) fn unanswered_line_refusal(
    line: &LineDownstream,
    state: &ExchangeState,
    now: u64,
) -> Option<ApiError> {
    if line.is_cancelled() {
        None
    } else if line.was_permit_recalled() {
        Some(ApiError::new(ErrorCode::Unavailable).with_retry_after(1))
    } else if !state.principal.is_valid_at(now) {
        Some(ApiError::new(ErrorCode::InvalidKey))
    } else {
        Some(ApiError::new(ErrorCode::Internal))
    }
}

/// Outcome of the exchange of a batch line.
pub(crate) enum LineCompletion<'a> {
    /// A response was written.
    Answered,
    /// The line was refused.
    Refused(&'a ApiError),
    /// The line was cancelled before it had a response.
    Cancelled,
}

/// Reports the end of a line to the batch. If the line yielded (also to wait for held funds) or was interrupted, and so
/// runs again later, its access record states this too.
pub(crate) fn report_line_end(
    line: &LineDownstream,
    state: &mut ExchangeState,
    outcome: &LineCompletion<'_>,
) {
    let record = &mut state.record;
    let without_permit = record.attempts.is_empty() && !record.queued.is_zero();
    let ending = match outcome {
        LineCompletion::Cancelled => LineDisposition::Cancelled,
        LineCompletion::Answered => LineDisposition::Final,
        LineCompletion::Refused(refusal) if refusal.is_caused_by_reservations => LineDisposition::FundsHeld,
        LineCompletion::Refused(refusal) => match retry_delay(refusal) {
            None => LineDisposition::Final,
            Some(pause) if line.was_permit_recalled() || without_permit => LineDisposition::Yielded(pause),
            Some(pause) => LineDisposition::Retry(pause),
        },
    };
    if line.answer_identity().is_some()
        && !matches!(ending, LineDisposition::Final | LineDisposition::Cancelled)
    {
        record.kind = ExchangeKind::RetryableBackgroundAttempt;
    }
    if matches!(ending, LineDisposition::Yielded(_) | LineDisposition::FundsHeld) {
        record.outcome = ExchangeOutcome::Yielded;
    } else if ending == LineDisposition::Cancelled && line.is_interrupted() {
        record.outcome = ExchangeOutcome::Interrupted;
    }
    line.set_report(LineReport {
        request_id: state.id,
        status: record.status,
        usage: record.done.as_ref().and_then(WorkDone::usage).copied(),
        disposition: ending,
    });
}

/// Returns the time after which the line is retried; `None` if a retry would not help.
fn retry_delay(refusal: &ApiError) -> Option<Duration> {
    let status = refusal.spec().status;
    let after = refusal.retry_after.map_or(DEFAULT_RETRY, |seconds| Duration::from_secs(seconds.into()));
    (!refusal.is_final && (status == 429 || status >= 500)).then_some(after)
}
