//! The record of one exchange: what its log line, its metrics and its bill are
//! made from. Nothing in it was written by a client or a provider, but for the
//! names that the client gave its request.

use super::{Trace, log};
use crate::config::settings::LogLevel;
use crate::telemetry::request_id::RequestId;
use penstock_contract::{Dialect, Done, Refusal};
use penstock_footprint::Footprint;
use penstock_pricing::RequestCharge;
use std::sync::Arc;
use std::time::Duration;

/// The endpoint of health checks.
pub const HEALTH: &str = "health";

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered to the end.
    Ok,
    /// Refused with an error of the table.
    Refused,
    /// A stream that was begun and could not be ended well.
    Broken,
    /// The client left first.
    Left,
    /// A line of a batch that gave its seat up; it is asked again.
    Yielded,
}

impl Outcome {
    /// Its name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Left => "left",
            Self::Yielded => "yielded",
        }
    }
}

/// One attempt, as the log and `details.attempts` tell it.
#[derive(Clone, Debug)]
pub struct AttemptNote {
    /// The provider's id.
    pub provider: Box<str>,
    /// `ok`, or the name of its fault.
    pub outcome: &'static str,
    /// How long it took.
    pub took: Duration,
}

impl AttemptNote {
    /// A line of its own at the level `debug`, for whoever looks for what went where: the request, the provider, the
    /// model as the catalogue has it, which attempt it was, how it ended.
    pub fn tell(&self, id: &RequestId, model: &str, number: u32) {
        if !log::wanted(LogLevel::Debug) {
            return;
        }
        let took = format!("{:.3}", self.took.as_secs_f64() * 1e3);
        log::event(
            LogLevel::Debug,
            "attempt",
            &[
                ("id", id.as_str()),
                ("provider", &self.provider),
                ("model", model),
                ("attempt", &number.to_string()),
                ("outcome", self.outcome),
                ("ms", &took),
            ],
        );
    }
}

/// What is told of one exchange.
#[derive(Debug)]
pub struct Record {
    /// Its name.
    pub id: RequestId,
    /// The client's own names for it.
    pub trace: Option<Box<Trace>>,
    /// The dialect of its path.
    pub dialect: Dialect,
    /// The endpoint's name; `unknown` before one was found.
    pub endpoint: &'static str,
    /// Public id of its key.
    pub key: Option<Arc<str>>,
    /// The catalogue's id of the model that was asked for, or of the fallback that answered.
    pub model: Option<Box<str>>,
    /// The flavor's name.
    pub flavor: Option<&'static str>,
    /// It was answered as a stream.
    pub stream: bool,
    /// HTTP status that was sent.
    pub status: u16,
    /// The stable code, if it was refused.
    pub code: Option<&'static str>,
    /// How it ended.
    pub outcome: Outcome,
    /// The attempts, in order.
    pub attempts: Vec<AttemptNote>,
    /// The provider that answered.
    pub provider: Option<Box<str>>,
    /// From the head of the request to the first content token sent on.
    pub first_token: Option<Duration>,
    /// Time spent waiting for providers; the rest is the gateway's own.
    pub waited: Duration,
    /// Time spent waiting for a seat.
    pub queued: Duration,
    /// It is a line of a batch.
    pub line: bool,
    /// Size of the request body.
    pub bytes_in: usize,
    /// Size of the response body.
    pub bytes_out: usize,
    /// What was done for the answer.
    pub done: Option<Done>,
    /// Its footprint.
    pub footprint: Option<Footprint>,
    /// Its charge.
    pub charge: Option<RequestCharge>,
}

impl Record {
    /// An exchange of which nothing is known yet.
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
            status: 0,
            code: None,
            outcome: Outcome::Ok,
            attempts: Vec::new(),
            provider: None,
            first_token: None,
            waited: Duration::ZERO,
            queued: Duration::ZERO,
            line: false,
            bytes_in: 0,
            bytes_out: 0,
            done: None,
            footprint: None,
            charge: None,
        }
    }

    /// How much of it was neither in a queue nor in an attempt. What an attempt does itself, encoding and translating,
    /// is not told from waiting.
    #[must_use]
    pub fn own(&self, took: Duration) -> Duration {
        took.saturating_sub(self.waited).saturating_sub(self.queued)
    }

    /// It was refused.
    pub fn refused(&mut self, refusal: &Refusal) {
        let row = refusal.row();
        self.status = row.status;
        self.code = Some(row.code);
        self.outcome = Outcome::Refused;
    }

    /// A stream that had begun was ended with an error.
    pub fn broke(&mut self, refusal: &Refusal) {
        self.code = Some(refusal.row().code);
        self.outcome = Outcome::Broken;
    }

    /// It is over.
    pub fn end(&mut self, left: bool, bytes_out: usize) {
        self.bytes_out = bytes_out;
        if left && self.outcome == Outcome::Ok {
            self.outcome = Outcome::Left;
        }
    }
}
