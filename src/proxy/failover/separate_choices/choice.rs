//! One choice of a request for several choices: a separate exchange with all attempts of a request. Its response goes
//! to the client's exchange, and not to the client directly.

use super::super::attempt::AttemptError;
use super::super::completed_calls::CompletedCalls;
use super::super::select::CandidateSet;
use super::super::wait::ClientWatch;
use super::super::{FailoverRun, ResponseMemoryReservation, ResponseProgress, settle};
use super::{ChoiceFuture, ChoiceUsage, StopReason};
use crate::auth::key_cache::Principal;
use crate::proxy::downstream::{Downstream, FirstContent, LineDownstream};
use crate::proxy::exchange::{Exchange, ExchangeState, WriteOutcome};
use crate::proxy::{InProcessSession, RequestSource};
use crate::state::AppState;
use crate::telemetry::AccessRecord;
use crate::telemetry::request_id::RequestId;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::offer::OfferState;
use bytes::{Bytes, BytesMut};
use penstock_core::{
    AdjustableMemberSet, ApiError, ChoiceSelection, Dialect, FinishReason, InferenceRequest,
    RequiredCapabilities, TokenUsage,
};
use penstock_limits::WorkClass;
use penstock_routing::AttemptAdmission;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// State that the choices of one request share.
pub(super) struct SharedChoiceState<'a> {
    app: &'a Arc<AppState>,
    live: Arc<ConfigSnapshot>,
    principal: Arc<Principal>,
    id: RequestId,
    dialect: Dialect,
    work: WorkClass,
    started: Instant,
    flavor: Option<&'static str>,
    /// Request of the client, reduced to one choice.
    ask: InferenceRequest,
    chosen: CandidateSet,
    deadline: Instant,
    /// Time at which the candidates were selected, in Unix seconds; it selects the prices.
    at: u64,
    /// Progress of the client's stream when the choices are requested: waiting, or only the head has been sent.
    progress: ResponseProgress,
    /// Signal that asks the client's exchange to release its permit, if that exchange is a batch line.
    reclaim_signal: Option<CancellationToken>,
    /// Token that cancels all choices.
    pub(super) cancel: CancellationToken,
    /// Source of the first content; its model answers all choices.
    pub(super) first_content: Arc<OnceLock<FirstContent>>,
    /// Number of attempts that were made before the choices were requested separately.
    pub(super) earlier_attempts: u64,
}

/// Result of one choice.
pub(super) struct ChoiceOutcome {
    pub(super) index: u32,
    ended: Result<WriteOutcome, ApiError>,
    /// True if all candidates were at their limit.
    pub(super) is_provider_full: bool,
    /// Usage of the choice, and its offer; `None` if the choice was not settled.
    pub(super) usage: Option<ChoiceUsage>,
    pub(super) finish_reason: Option<FinishReason>,
    /// Body of the choice, if it is not a stream.
    pub(super) body: Bytes,
    spent: settle::FailedAttemptEnergy,
    record: AccessRecord,
}

impl<'a> SharedChoiceState<'a> {
    /// Creates the state that the choices of a request share; offers that have failed are left out.
    pub(super) fn from_run(run: &FailoverRun<'_, 'a>, failed: impl Fn(usize) -> bool) -> Self {
        let mut chosen = run.candidates.clone();
        chosen.entries.retain(|entry| !failed(entry.offer));
        let x = &*run.exchange;
        let first_content = OnceLock::new();
        // The choices that are missing in a stream come from the model of that stream.
        if let Some(offer) = run.current_offer.as_ref().filter(|_| run.progress.has_content()) {
            let _ = first_content.set(FirstContent::from_offer(&offer.offer, 0));
        }
        Self {
            app: x.app,
            live: x.config.clone(),
            principal: x.principal.clone(),
            id: x.id,
            dialect: x.dialect,
            work: x.work,
            started: x.started,
            flavor: x.record.flavor,
            ask: InferenceRequest {
                n: 1,
                required: RequiredCapabilities { multiple_choices: false, ..run.request.required },
                ..run.request.clone()
            },
            chosen,
            deadline: run.deadline,
            at: run.received_at,
            progress: run.progress.min(ResponseProgress::HeadSent),
            reclaim_signal: x.caller.permit_recall_token(),
            cancel: CancellationToken::default(),
            first_content: Arc::new(first_content),
            earlier_attempts: u64::try_from(x.record.attempts.len()).unwrap_or(u64::MAX),
        }
    }

    /// Copies the shared state of the client's exchange into the exchange of a choice.
    fn prepare_exchange(&self, x: &mut Exchange<'_>) {
        x.config = self.live.clone();
        x.dialect = self.dialect;
        x.work = self.work;
        x.principal = self.principal.clone();
        x.id = self.id;
        x.started = self.started;
        x.record = AccessRecord::new(self.id, self.dialect);
        x.record.flavor = self.flavor;
    }

    /// Returns the maximum number of choices that are requested at the same time: the highest `max_in_flight` of the
    /// candidates' providers. There is no maximum if one of these providers has no limit.
    pub(super) fn max_concurrent(&self) -> usize {
        let offers = self.chosen.entries.iter().filter_map(|entry| self.live.offers.get(entry.offer));
        let concurrency = offers.map(|offer| offer.offer.provider.max_in_flight);
        let most = concurrency
            .map(|concurrency| concurrency.and_then(|concurrency| usize::try_from(concurrency).ok()))
            .max_by_key(|concurrency| concurrency.unwrap_or(usize::MAX));
        most.flatten().unwrap_or(usize::MAX).max(1)
    }
}

impl FailoverRun<'_, '_> {
    /// Returns true if this run serves a choice without content, and another choice has content of another model than
    /// the offer's.
    pub(in super::super) fn excludes_model(&self, offer: &OfferState) -> bool {
        let line = self.exchange.caller.in_process_line().filter(|_| !self.progress.has_content());
        line.is_some_and(|line| line.excludes_model(&offer.offer.model.card.id))
    }

    /// Records the offer of the first content, if this run serves a choice. `usage` is that of a buffered answer.
    ///
    /// # Errors
    /// Returns an error if another choice has content of another model.
    pub(in super::super) fn record_first_content(
        &mut self,
        offer: &OfferState,
        attempt: u32,
        usage: Option<TokenUsage>,
    ) -> Result<(), AttemptError> {
        match self.exchange.caller.record_first_content(FirstContent::from_offer(&offer.offer, attempt)) {
            true => Ok(()),
            false => Err(AttemptError::Discarded(usage)),
        }
    }
}

impl ChoiceOutcome {
    /// Adds the energy and the record of the choice to the client's request.
    pub(super) fn merge_energy_and_record(&mut self, run: &mut FailoverRun<'_, '_>) {
        run.failed_energy.merge(std::mem::take(&mut self.spent));
        let (mine, all) = (&mut self.record, &mut run.exchange.record);
        all.attempts.append(&mut mine.attempts);
        // The choices run concurrently, so the longest of their waits counts.
        all.waited = all.waited.max(mine.waited);
        all.queued = all.queued.max(mine.queued);
    }

    /// Returns the reason to request no more choices, if there is one.
    pub(super) fn reason_to_stop_requesting(&self) -> Option<StopReason> {
        match &self.ended {
            Ok(WriteOutcome::Complete) => None,
            Ok(WriteOutcome::Disconnected) => Some(StopReason::Disconnected),
            // A choice that failed by itself has usage only if its delivered part is charged.
            Err(refusal) => {
                Some(StopReason::Refused { refusal: refusal.clone(), is_charged: self.usage.is_some() })
            }
        }
    }
}

/// Requests one choice. The future is boxed because it is recursive: a request for several choices contains requests
/// for one choice.
pub(super) fn request_choice<'s>(
    seed: &'s SharedChoiceState<'_>,
    index: u32,
    pieces: Sender<Bytes>,
) -> ChoiceFuture<'s> {
    Box::pin(async move {
        let pieces = seed.ask.stream.then_some(pieces);
        let line = LineDownstream::for_choice(
            seed.cancel.clone(),
            pieces,
            seed.first_content.clone(),
            seed.reclaim_signal.clone(),
        );
        let mut session = InProcessSession::for_choice(line.clone());
        let mut state = ExchangeState::new(seed.app);
        let caller = Downstream::new(&mut session, Some(RequestSource::Line(line.clone())));
        let mut x = Exchange { app: seed.app, caller, state: &mut state };
        seed.prepare_exchange(&mut x);
        let mut watch = ClientWatch::new(seed.principal.clone(), Some(seed.live.settings.limits.heartbeat));
        if seed.progress.has_head() {
            watch.record_write(Instant::now());
        }
        let mut run = FailoverRun {
            watch,
            deadline: seed.deadline,
            request: &seed.ask,
            upload: None,
            candidates: seed.chosen.clone(),
            translation: None,
            current_offer: None,
            admission: AttemptAdmission::default(),
            attempt_started: None,
            header_energy: None,
            progress: seed.progress,
            memory: ResponseMemoryReservation::new(),
            completed: CompletedCalls::default(),
            failed_energy: settle::FailedAttemptEnergy::default(),
            hold: None,
            received_at: seed.at,
            settled: settle::SettledCharge::default(),
            refusal: None,
            incompatible: None,
            had_unavailable: false,
            choices: ChoiceSelection::One(index),
            omitted_members: AdjustableMemberSet::NONE,
            sent_omissions: AdjustableMemberSet::NONE,
            separate_choices: None,
            all_full: false,
            exchange: &mut x,
        };
        let ended = run.run_attempts().await;
        let (spent, is_provider_full) = (std::mem::take(&mut run.failed_energy), run.all_full);
        drop(run);
        let record = std::mem::replace(&mut x.record, AccessRecord::new(seed.id, seed.dialect));
        drop(x);
        let body = joined_body(&line);
        let (usage, finish_reason) = line.take_choice_usage();
        ChoiceOutcome { index, ended, is_provider_full, usage, finish_reason, body, spent, record }
    })
}

/// Returns the body of a choice that is not a stream.
fn joined_body(line: &LineDownstream) -> Bytes {
    let mut body = BytesMut::new();
    line.take_response().iter().for_each(|piece| body.extend_from_slice(piece));
    body.freeze()
}
