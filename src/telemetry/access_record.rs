//! Record of one exchange, from which its log line, its metrics and its bill are made. It contains no text of a
//! client or a provider, except for the ids that the client gave its request.

use super::TraceContext;
use super::outcome_history::OpenStreamGuard;
use crate::telemetry::request_id::RequestId;
use penstock_core::{ApiError, Dialect, WorkDone};
use penstock_footprint::AnswerFootprint;
use penstock_pricing::RequestCharge;
use penstock_response_metadata::CacheSavings;
use std::sync::Arc;
use std::time::Duration;

/// Name of the health check endpoint in access records.
pub const HEALTH_ENDPOINT_NAME: &str = "health";

/// Kind of an exchange, for metrics and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Request of a client, or an attempt of a background response that cannot be sent again.
    Request,
    /// Line of a batch.
    BatchLine,
    /// Failed attempt of a background response that may be sent again; no client waits for it.
    RetryableBackgroundAttempt,
}

/// Outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeOutcome {
    /// The exchange was answered completely.
    Ok,
    /// The exchange was refused with an error code of the error table.
    Refused,
    /// The exchange is a stream that had begun and then ended with an error.
    Broken,
    /// The client disconnected before the end.
    Disconnected,
    /// The exchange is a line of a batch, or a background response, that was cancelled.
    Cancelled,
    /// The exchange is a line of a batch, or a background response, that is sent again, because the gateway stops or
    /// another one continues the batch.
    Interrupted,
    /// The exchange is a line of a batch that released its permit; the line is retried.
    Yielded,
}

impl ExchangeOutcome {
    /// Returns the name of the outcome in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Disconnected => "left",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Yielded => "yielded",
        }
    }
}

/// Record of one attempt, as the log and the error detail `attempts` show it.
#[derive(Clone, Debug)]
pub struct AttemptRecord {
    /// Id of the provider.
    pub provider: Box<str>,
    /// `ok`, or the name of the fault.
    pub outcome: &'static str,
    /// Duration of the attempt.
    pub duration: Duration,
}

impl AttemptRecord {
    /// Logs the attempt at the level `debug`: request, provider, model of the catalogue, number and outcome.
    pub fn log_attempt(&self, id: &RequestId, model: &str, number: u32) {
        tracing::debug!(
            name: "attempt",
            id = id.as_str(),
            provider = self.provider,
            model,
            attempt = %number,
            outcome = self.outcome,
            ms = %format_args!("{:.3}", self.duration.as_secs_f64() * 1e3),
        );
    }
}

/// Record of one exchange.
#[derive(Debug)]
pub struct AccessRecord {
    /// Request id.
    pub id: RequestId,
    /// Ids that the client gave the request.
    pub trace: Option<Box<TraceContext>>,
    /// Dialect of the request's path.
    pub dialect: Dialect,
    /// Name of the endpoint; `unknown` until the endpoint is found.
    pub endpoint: &'static str,
    /// Public id of the API key.
    pub key: Option<Arc<str>>,
    /// Catalogue id of the requested model, or of the fallback that answered.
    pub model: Option<Box<str>>,
    /// Name of the flavor.
    pub flavor: Option<&'static str>,
    /// True if the request was answered as a stream.
    pub stream: bool,
    /// Guard that counts the stream as open until the end of the exchange.
    pub open_stream: Option<OpenStreamGuard>,
    /// HTTP status that was sent.
    pub status: u16,
    /// Stable error code; `None` if the request was not refused and its stream did not end with an error.
    pub error_code: Option<&'static str>,
    /// Outcome of the exchange.
    pub outcome: ExchangeOutcome,
    /// Attempts at providers, in order.
    pub attempts: Vec<AttemptRecord>,
    /// Provider that answered; `None` if none did.
    pub provider: Option<Box<str>>,
    /// Time from the request head to the first content token sent in a stream, queues included; `None` if none was
    /// sent.
    pub first_token: Option<Duration>,
    /// Time that is not the gateway's own: the attempts at providers, the pauses between them, and the wait for the
    /// parts of a multipart form that the client uploads.
    pub waited: Duration,
    /// Time spent waiting for permits.
    pub queued: Duration,
    /// Kind of the exchange.
    pub kind: ExchangeKind,
    /// Size of the request body in bytes.
    pub bytes_in: usize,
    /// Size of the response body in bytes.
    pub bytes_out: usize,
    /// Work done for the response; `None` if no provider answered.
    pub done: Option<WorkDone>,
    /// Footprint of the response.
    pub footprint: Option<AnswerFootprint>,
    /// Charge for the response.
    pub charge: Option<RequestCharge>,
    /// Energy and credits that the provider's prefix cache saved; `None` if no tokens came from it.
    pub cache: Option<CacheSavings>,
    /// Outcome of the session affinity; `None` if the request has no session.
    pub session: Option<SessionAffinityOutcome>,
}

/// Relation of the offer that answered to the offer that answered the previous request of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionAffinityOutcome {
    /// No earlier answer to the session is known.
    New,
    /// The same offer answered as for the last request of the session.
    Stayed,
    /// Another offer answered: the previous offer was ejected or overloaded, or the new one was better.
    Moved,
}

impl SessionAffinityOutcome {
    /// Returns the name of the session outcome in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Stayed => "stayed",
            Self::Moved => "moved",
        }
    }
}

impl AccessRecord {
    /// Creates the record of a new exchange.
    #[must_use]
    pub fn new(id: RequestId, dialect: Dialect) -> Self {
        Self {
            id,
            trace: None,
            dialect,
            endpoint: "unknown",
            key: None,
            model: None,
            flavor: None,
            stream: false,
            open_stream: None,
            status: 0,
            error_code: None,
            outcome: ExchangeOutcome::Ok,
            attempts: Vec::new(),
            provider: None,
            first_token: None,
            waited: Duration::ZERO,
            queued: Duration::ZERO,
            kind: ExchangeKind::Request,
            bytes_in: 0,
            bytes_out: 0,
            done: None,
            footprint: None,
            charge: None,
            cache: None,
            session: None,
        }
    }

    /// Returns the part of the duration `took` that is the gateway's own: `took` without `queued` and `waited`.
    /// Encoding and translation during an attempt count as part of the attempt, and not as the gateway's own time.
    #[must_use]
    pub fn gateway_time(&self, took: Duration) -> Duration {
        took.saturating_sub(self.waited).saturating_sub(self.queued)
    }

    /// Records that the request was refused with this error.
    pub fn record_refusal(&mut self, refusal: &ApiError) {
        let row = refusal.spec();
        self.status = row.status;
        self.error_code = Some(row.code);
        self.outcome = ExchangeOutcome::Refused;
    }

    /// Records a stream that ended with an error.
    pub fn record_broken_stream(&mut self, refusal: &ApiError) {
        self.error_code = Some(refusal.spec().code);
        self.outcome = ExchangeOutcome::Broken;
    }

    /// Records the end of the exchange. `interruption` is the outcome if it ended before its response was complete; it
    /// does not replace the outcome of a refused or broken exchange.
    pub fn record_end(&mut self, interruption: Option<ExchangeOutcome>, bytes_out: usize) {
        self.bytes_out = bytes_out;
        if let Some(interruption) = interruption.filter(|_| self.outcome == ExchangeOutcome::Ok) {
            self.outcome = interruption;
        }
    }
}
