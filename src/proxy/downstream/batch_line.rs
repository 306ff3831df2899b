//! A line of a batch, or one choice of a request for several: no socket, and no headers either way.

use crate::auth::key_cache::Principal;
use crate::billing::HoldEnd;
use crate::proxy::failover::Part;
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_core::{ApiError, FinishReason, TokenUsage};
use std::io::{ErrorKind, Result};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// A line.
#[derive(Default)]
pub struct LineDownstream {
    cancel: CancellationToken,
    asked_back: CancellationToken,
    /// The key that a line of a batch is asked with.
    principal: Option<Arc<Principal>>,
    /// Destination of the response, for one choice of a request for several.
    choice: Option<LineChoice>,
    result: Mutex<LineResult>,
}

/// Destination of the response of one choice: the exchange of the request for several.
struct LineChoice {
    /// Pieces of a stream; a whole response is kept.
    pieces: Option<Sender<Bytes>>,
    /// The provider that sends the first content of all choices, and at which attempt.
    first: Arc<OnceLock<(Box<str>, u32)>>,
    /// The signal that asks the request to leave, where that is a line of a batch.
    back: Option<CancellationToken>,
}

/// Result of a line.
#[derive(Default)]
struct LineResult {
    sent: Vec<Bytes>,
    /// End of the credit reserve; entered together with the response.
    end: Option<HoldEnd>,
    /// Usage of a choice, and its finish reason.
    part: Option<Part>,
    finish: Option<FinishReason>,
    report: Option<LineReport>,
}

/// Report of a line that has ended.
pub struct LineReport {
    /// Id of its exchange.
    pub request: RequestId,
    /// Status that a client would have been sent.
    pub status: u16,
    /// Tokens that it used.
    pub usage: Option<TokenUsage>,
    /// The refusal, if it was refused.
    pub refusal: Option<ApiError>,
    /// The line is asked again: it gave up its permit, got none, or lacked credits that others hold.
    pub yielded: bool,
    /// The line was cancelled before it had a response.
    pub cancelled: bool,
}

impl LineDownstream {
    /// A line of a batch, asked with this key until `cancel` is given.
    #[must_use]
    pub fn of_batch(principal: Arc<Principal>, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(Self { principal: Some(principal), cancel, ..Self::default() })
    }

    /// One choice of a request for several, until `cancel` is given. `pieces` takes a stream, `first` the provider of
    /// the first content, and `back` asks the request to leave.
    pub(crate) fn of_choice(
        cancel: CancellationToken,
        pieces: Option<Sender<Bytes>>,
        first: Arc<OnceLock<(Box<str>, u32)>>,
        back: Option<CancellationToken>,
    ) -> Arc<Self> {
        let choice = Some(LineChoice { pieces, first, back });
        Arc::new(Self { choice, cancel, ..Self::default() })
    }

    /// The key of a batch line.
    #[must_use]
    pub const fn principal(&self) -> Option<&Arc<Principal>> {
        self.principal.as_ref()
    }

    /// Returns true once the batch has cancelled the line.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Returns true once a client's request needs the permit of the line.
    #[must_use]
    pub fn was_asked_back(&self) -> bool {
        self.asked_back.is_cancelled()
    }

    /// The signal that asks it to give its permit to a request at once.
    #[must_use]
    pub fn asked_back(&self) -> Option<CancellationToken> {
        match &self.choice {
            Some(choice) => choice.back.clone(),
            None => Some(self.asked_back.clone()),
        }
    }

    /// Ends when the line has to.
    pub async fn left(&self) {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {}
            () = self.asked_back.cancelled() => {}
        }
    }

    /// Takes more of its response.
    ///
    /// # Errors
    /// The request that wants the choice is gone.
    pub async fn push(&self, piece: Bytes) -> Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        match self.choice.as_ref().and_then(|choice| choice.pieces.as_ref()) {
            Some(pieces) => pieces.send(piece).await.map_err(|_| ErrorKind::BrokenPipe.into()),
            None => {
                self.result.lock().sent.push(piece);
                Ok(())
            }
        }
    }

    /// Takes the response body.
    #[must_use]
    pub fn take_response(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.result.lock().sent)
    }

    /// Notes how its reserve ends.
    pub fn set_end(&self, end: HoldEnd) {
        self.result.lock().end = Some(end);
    }

    /// The end of its reserve.
    #[must_use]
    pub fn take_end(&self) -> Option<HoldEnd> {
        self.result.lock().end.take()
    }

    /// Notes how it ended.
    pub fn set_report(&self, report: LineReport) {
        self.result.lock().report = Some(report);
    }

    /// The report of its end, once.
    #[must_use]
    pub fn take_report(&self) -> Option<LineReport> {
        self.result.lock().report.take()
    }

    pub(super) fn keep_part(&self, part: Part) -> std::result::Result<(), Part> {
        if self.choice.is_none() {
            return Err(part);
        }
        self.result.lock().part = Some(part);
        Ok(())
    }

    pub(super) fn note_provider(&self, provider: &str, number: u32) {
        if let Some(choice) = &self.choice {
            // The first of all choices counts.
            let _ = choice.first.set((provider.into(), number));
        }
    }

    pub(super) fn note_finish(&self, finish: Option<FinishReason>) {
        if self.choice.is_some() {
            self.result.lock().finish = finish;
        }
    }

    /// Usage of a choice, and its finish reason.
    pub(crate) fn take_part(&self) -> (Option<Part>, Option<FinishReason>) {
        let mut result = self.result.lock();
        (result.part.take(), result.finish)
    }
}
