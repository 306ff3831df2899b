//! Downstream side of a batch line, of a background response, or of one choice of a request for several choices. It has
//! no socket and no headers.

use crate::auth::key_cache::Principal;
use crate::batch::{LineDisposition, LineOrigin, PreassignedResponseIdentity};
use crate::billing::HoldEnd;
use crate::config::settings::OfferSettings;
use crate::proxy::failover::ChoiceUsage;
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_core::{FinishReason, TokenUsage};
use penstock_limits::WorkClass;
use std::io::{ErrorKind, Result};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// Downstream side of a batch line, of a background response, or of one choice of a request for several choices.
#[derive(Default)]
pub struct LineDownstream {
    cancel: CancellationToken,
    /// Token that is cancelled before `cancel` if the line is to be sent again later.
    interrupted: CancellationToken,
    permit_recall_token: CancellationToken,
    /// Principal of the batch's key; `None` for a choice.
    principal: Option<Arc<Principal>>,
    /// Identity of the answer, for a background response.
    identity: Option<PreassignedResponseIdentity>,
    /// Destination of the response, if this is one choice of a request for several choices.
    choice: Option<LineChoice>,
    result: Mutex<LineResult>,
}

/// Destination of the response of one choice: the exchange that requested all choices.
struct LineChoice {
    /// Channel for the pieces of a stream; a buffered response is stored instead.
    pieces: Option<Sender<Bytes>>,
    /// Source of the first content of all choices.
    first: Arc<OnceLock<FirstContent>>,
    /// Signal that asks the exchange of all choices to release its permit, if that exchange is a batch line.
    back: Option<CancellationToken>,
}

/// Source of the first content of a request whose choices are requested one by one. All its choices are answered by
/// this model, because the response names one model.
pub(crate) struct FirstContent {
    /// Id of the provider.
    pub(crate) provider: Box<str>,
    /// Id of the model in the catalogue.
    pub(crate) model: Box<str>,
    /// Number of the choice's attempt.
    pub(crate) attempt: u32,
}

impl FirstContent {
    /// Creates the source for an offer and the number of its attempt.
    pub(crate) fn from_offer(offer: &OfferSettings, attempt: u32) -> Self {
        Self { provider: offer.provider.id.clone(), model: offer.model.card.id.as_str().into(), attempt }
    }
}

/// Result of a batch line, of a background response, or of one choice.
#[derive(Default)]
struct LineResult {
    sent: Vec<Bytes>,
    /// End of the credit reservation; written together with the response.
    end: Option<HoldEnd>,
    /// Usage of a choice; `finish` is its finish reason.
    part: Option<ChoiceUsage>,
    finish: Option<FinishReason>,
    report: Option<LineReport>,
}

/// Report of a line that has ended.
pub struct LineReport {
    /// Id of the line's exchange.
    pub request_id: RequestId,
    /// Status that a client would have been sent.
    pub status: u16,
    /// Tokens that the line used; `None` if it has no answer, or if its work is not counted in tokens.
    pub usage: Option<TokenUsage>,
    /// Kind of the end: final, to be retried, or cancelled.
    pub disposition: LineDisposition,
}

impl LineDownstream {
    /// Creates a batch line or a background response that uses this key. `cancel` cancels it. If it is to be sent
    /// again later, `interrupted` is cancelled before `cancel`.
    #[must_use]
    pub fn for_batch(
        principal: Arc<Principal>,
        (cancel, interrupted): (CancellationToken, CancellationToken),
        class: LineOrigin,
    ) -> Arc<Self> {
        let identity = match class {
            LineOrigin::Batch => None,
            LineOrigin::Background(identity) => Some(identity),
        };
        Arc::new(Self { principal: Some(principal), cancel, interrupted, identity, ..Self::default() })
    }

    /// Returns the class of work, which selects limits and prices.
    #[must_use]
    pub const fn work_class(&self) -> WorkClass {
        match self.identity {
            None => WorkClass::BatchLine,
            Some(_) => WorkClass::Request,
        }
    }

    /// Returns the identity of the answer of a background response; `None` for a batch line or a choice.
    #[must_use]
    pub const fn answer_identity(&self) -> Option<&PreassignedResponseIdentity> {
        self.identity.as_ref()
    }

    /// Creates one choice of a request for several choices; `cancel` cancels it. `pieces` receives its stream, `first`
    /// gets the source of the first content, and `back` is the signal that asks the request for all choices to
    /// release its permit.
    pub(crate) fn for_choice(
        cancel: CancellationToken,
        pieces: Option<Sender<Bytes>>,
        first: Arc<OnceLock<FirstContent>>,
        back: Option<CancellationToken>,
    ) -> Arc<Self> {
        let choice = Some(LineChoice { pieces, first, back });
        Arc::new(Self { choice, cancel, ..Self::default() })
    }

    /// Returns the principal of a batch line or background response; `None` for a choice.
    #[must_use]
    pub const fn principal(&self) -> Option<&Arc<Principal>> {
        self.principal.as_ref()
    }

    /// Returns true if the batch has cancelled the line.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Returns true if the line is to be sent again later, because its permit was recalled, the gateway stops, or
    /// another gateway continues the batch.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_cancelled() || (self.was_permit_recalled() && !self.is_cancelled())
    }

    /// Returns the name of the reason why the line ended, if it was cancelled or interrupted. A choice ends like a
    /// request whose client has left.
    #[must_use]
    pub fn close_reason(&self) -> &'static str {
        match self.principal {
            None => "left",
            Some(_) if self.is_interrupted() => "interrupted",
            Some(_) => "cancelled",
        }
    }

    /// Returns true if the line was asked to release its permit to an interactive request.
    #[must_use]
    pub fn was_permit_recalled(&self) -> bool {
        self.permit_recall_token.is_cancelled()
    }

    /// Returns the signal that asks the line to release its permit to an interactive request. A choice has the signal
    /// of the exchange that requested all choices; a background response has none.
    #[must_use]
    pub fn permit_recall_token(&self) -> Option<CancellationToken> {
        match &self.choice {
            Some(choice) => choice.back.clone(),
            None if self.identity.is_some() => None,
            None => Some(self.permit_recall_token.clone()),
        }
    }

    /// Waits until the line is cancelled, or is asked to release its permit.
    pub async fn wait_for_cancel_or_recall(&self) {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {}
            () = self.permit_recall_token.cancelled() => {}
        }
    }

    /// Adds a piece of the response.
    ///
    /// # Errors
    /// Returns an error if the exchange that requested the choices has ended.
    pub async fn push_response_piece(&self, piece: Bytes) -> Result<()> {
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

    /// Removes and returns the pieces of the response body.
    #[must_use]
    pub fn take_response(&self) -> Vec<Bytes> {
        std::mem::take(&mut self.result.lock().sent)
    }

    /// Stores the end of the credit reservation: settled or voided.
    pub fn set_hold_outcome(&self, end: HoldEnd) {
        self.result.lock().end = Some(end);
    }

    /// Removes and returns the end of the credit reservation: settled or voided; `None` if no end was stored, or it was
    /// removed before.
    #[must_use]
    pub fn take_hold_outcome(&self) -> Option<HoldEnd> {
        self.result.lock().end.take()
    }

    /// Sets the report of the line's end.
    pub fn set_report(&self, report: LineReport) {
        self.result.lock().report = Some(report);
    }

    /// Removes and returns the report of the line's end; `None` if no report was set, or it was removed before.
    #[must_use]
    pub fn take_report(&self) -> Option<LineReport> {
        self.result.lock().report.take()
    }

    /// Stores the usage of this choice; returns it as an error if this is not a choice.
    pub(super) fn store_choice_usage(&self, part: ChoiceUsage) -> std::result::Result<(), ChoiceUsage> {
        if self.choice.is_none() {
            return Err(part);
        }
        self.result.lock().part = Some(part);
        Ok(())
    }

    /// Records the source of a choice's first content. Returns false if an earlier choice has content of another model,
    /// so that this content must not be sent.
    pub(super) fn record_first_content(&self, content: FirstContent) -> bool {
        let Some(choice) = &self.choice else { return true };
        let model = content.model.clone();
        choice.first.get_or_init(|| content).model == model
    }

    /// Returns true if an earlier choice of the same request has content of another model.
    pub(crate) fn excludes_model(&self, model: &str) -> bool {
        let first = self.choice.as_ref().and_then(|choice| choice.first.get());
        first.is_some_and(|first| *first.model != *model)
    }

    /// Records the finish reason of one choice of a split request, for the exchange that joins the choices. Does nothing
    /// for any other line.
    pub(super) fn record_choice_finish_reason(&self, finish: Option<FinishReason>) {
        if self.choice.is_some() {
            self.result.lock().finish = finish;
        }
    }

    /// Removes and returns the usage of a choice, and returns its finish reason; `None` if the choice was not settled.
    pub(crate) fn take_choice_usage(&self) -> (Option<ChoiceUsage>, Option<FinishReason>) {
        let mut result = self.result.lock();
        (result.part.take(), result.finish)
    }
}
