//! Failover driver: a loop that calls one provider after another until one answers.
//!
//! ```text
//! request filters ─▶ planner ─▶ upstream_peer ─▶ attempt ─▶ (buffered | streaming: response filters) ─▶ settle
//!                       ▲                          │ fail_to_connect       │ error_while_proxy
//!                       └──────────────────────────┴───────────────────────┘ another provider, or a rescue
//! ```
//! Before the first content token, the client has received no content, so it does not notice a failure. After that
//! token, a broken stream is rescued or ends with an error event.
//!
//! The driver itself calls the hooks of the response phases, in the order of Pingora: the loop of pingora-proxy 0.9
//! cannot resend a request body above 64 KiB, and it sends the response head before the first token.

mod acquire;
mod attempt;
mod buffered;
mod completed_calls;
mod exploration;
mod failed;
mod filtered;
mod image_work;
mod images;
mod mismatch;
mod output_cap;
mod response_memory;
mod select;
mod separate_choices;
mod settle;
mod single_images;
mod store_response;
mod streaming;
mod upstream_headers;
pub mod wait;

pub use filtered::check_offer_filters;
pub use image_work::max_image_work;
pub use select::{CandidateSet, expected_output_tokens, unsupported_by_offer_error};
pub use settle::FLAVOR_HEADER;
pub(crate) use {attempt::AttemptError, separate_choices::ChoiceUsage};

use crate::billing::Hold;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::filters::{InferenceContext, RequestBody, RequestFilterChain, RequestFilters};
use crate::storage::spool::SpooledData;
use crate::telemetry::AttemptRecord;
use crate::time::clock;
use crate::upstream::offer::{OfferPermit, OfferState};
use acquire::AcquireOutcome;
use completed_calls::CompletedCalls;
use failed::is_connect_failure;
use penstock_core::{
    AdjustableMemberSet, ApiError, ChoiceSelection, ErrorCode, InferenceRequest, MeasuredEnergy,
    StreamTranslation, UpstreamErrorKind,
};
use penstock_routing::{AttemptAdmission, AttemptPolicy, RetryAction, RetryPlanner};
use response_memory::ResponseMemoryReservation;
pub use response_memory::UNCOUNTED_BYTES;
use separate_choices::SeparateChoices;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::ClientWatch;

/// Progress of a streamed response towards the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResponseProgress {
    /// No byte has been sent: after a failure, the client gets an error status or the answer of another provider.
    Waiting,
    /// The head has been sent: after a failure, the client gets an error event or the answer of another provider.
    HeadSent,
    /// Content is being sent: after a failure, only a rescue is possible.
    ContentSent,
    /// The client's connection has accepted a part of the content: it is charged if the client leaves.
    ContentDelivered,
}

impl ResponseProgress {
    fn has_head(self) -> bool {
        self >= Self::HeadSent
    }

    fn has_content(self) -> bool {
        self >= Self::ContentSent
    }

    fn has_delivered_content(self) -> bool {
        self >= Self::ContentDelivered
    }
}

/// State of an inference request during its attempts.
struct FailoverRun<'r, 'a> {
    exchange: &'r mut Exchange<'a>,
    request: &'r InferenceRequest,
    /// File that was uploaded in a form request.
    upload: Option<SpooledData>,
    candidates: CandidateSet,
    watch: ClientWatch,
    /// Deadline of the request.
    deadline: Instant,
    /// Translation of the stream, which continues from one provider to the next.
    translation: Option<Box<dyn StreamTranslation>>,
    /// Offer whose stream the client is reading.
    current_offer: Option<Arc<OfferState>>,
    /// Admission of the current attempt by the breaker of its offer.
    admission: AttemptAdmission,
    /// Start time of the current attempt. If the provider reports no usage, the energy is computed from the duration.
    attempt_started: Option<Instant>,
    /// Measured energy in the head of the provider's stream; `None` if it has none.
    header_energy: Option<MeasuredEnergy>,
    /// Progress of a streamed response towards the client.
    progress: ResponseProgress,
    /// Memory that is counted for the response, over all attempts.
    memory: ResponseMemoryReservation,
    /// Answered calls of the last attempt, if it failed at one of several calls.
    completed: CompletedCalls,
    /// Energy of failed attempts.
    failed_energy: settle::FailedAttemptEnergy,
    /// Reserved credits, until they are settled or voided.
    hold: Option<Hold>,
    /// Time at which the candidates were selected, in Unix seconds. It selects the prices, and is the creation time in
    /// the response.
    received_at: u64,
    /// Charge of the request, as far as the end of the response needs it.
    settled: settle::SettledCharge,
    /// Refusal that is sent if no provider answers. It is an error of the client if a provider reported one.
    refusal: Option<ApiError>,
    /// Refusal if no provider could have answered: an incompatible request, or one too long for all windows.
    incompatible: Option<ApiError>,
    /// True if a provider failed or was not available, so that a later request might succeed.
    had_unavailable: bool,
    /// Choices of the client's request that this run serves.
    choices: ChoiceSelection,
    /// Members added by the gateway that the current offer refused.
    omitted_members: AdjustableMemberSet,
    /// Members that the last request to a provider left out: those of `omitted_members`, and those that its offer was
    /// known to refuse.
    sent_omissions: AdjustableMemberSet,
    /// Choices that are to be requested one by one.
    separate_choices: Option<SeparateChoices>,
    /// True if all candidates were at their limit.
    all_full: bool,
}

/// Serves an inference request: runs the request filters, then calls one candidate after another.
///
/// # Errors
/// Returns the refusal if nothing of a response has been sent.
pub async fn serve_request(x: &mut Exchange<'_>, body: RequestBody) -> Result<WriteOutcome, ApiError> {
    let mut request = InferenceContext::new(x, body);
    if let ControlFlow::Break(ended) = RequestFilters::check(&mut request).await? {
        return Ok(ended);
    }
    let InferenceContext {
        exchange: x,
        ask: Some(ask),
        candidates: Some(chosen),
        upload,
        selected_at: at,
        hold,
        ..
    } = request
    else {
        return Err(ApiError::new(ErrorCode::Internal));
    };
    x.app.retry_budget.lock().on_request(x.app.clock.steady_now());
    let total = x.config.settings.routing.total;
    let heartbeat = ask.streams_events().then_some(x.config.settings.limits.heartbeat);
    let mut run = FailoverRun {
        watch: ClientWatch::new(x.principal.clone(), heartbeat),
        // The deadline starts here, because the time in which the client sent its body does not count as the providers'
        // time.
        deadline: clock::cached_now() + total,
        exchange: x,
        request: &ask,
        upload,
        candidates: chosen,
        translation: None,
        current_offer: None,
        admission: AttemptAdmission::default(),
        attempt_started: None,
        header_energy: None,
        progress: ResponseProgress::Waiting,
        memory: ResponseMemoryReservation::new(),
        completed: CompletedCalls::default(),
        failed_energy: settle::FailedAttemptEnergy::default(),
        hold,
        received_at: at,
        settled: settle::SettledCharge::default(),
        refusal: None,
        incompatible: None,
        had_unavailable: false,
        choices: ChoiceSelection::All,
        omitted_members: AdjustableMemberSet::NONE,
        sent_omissions: AdjustableMemberSet::NONE,
        separate_choices: None,
        all_full: false,
    };
    let ended = run.run_attempts().await;
    run.refuse_interrupted(ended).await
}

impl FailoverRun<'_, '_> {
    /// Makes attempts at the candidates until the request is answered or refused.
    async fn run_attempts(&mut self) -> Result<WriteOutcome, ApiError> {
        let mut course = self.new_retry_planner();
        let mut next = course.first_step(self.now());
        let mut held_permit = None;
        loop {
            if let Some(wanted) = self.separate_choices.take() {
                return Box::pin(separate_choices::request_choices(self, wanted, &course)).await;
            }
            let step_result = match next {
                RetryAction::Attempt(index) if self.needs_separate_choices(index) => {
                    Ok(self.split_choices(&mut course))
                }
                RetryAction::Attempt(index) => {
                    self.attempt_offer(index, held_permit.take(), &mut course).await
                }
                RetryAction::RetrySame { after, .. } => self.pause_for(after, &mut course).await,
                RetryAction::WaitUntil(until) => {
                    self.pause_for(until.saturating_sub(self.now()), &mut course).await
                }
                RetryAction::WaitForPermit => match self.wait_in_queue(&course).await {
                    Ok(permit) => {
                        let next = match &permit {
                            Some(permit) => course.on_permit(permit.offer().offer.index, self.now()),
                            None => course.on_permit_timeout(self.now()),
                        };
                        held_permit = permit.filter(|_| matches!(next, RetryAction::Attempt(_)));
                        Ok(next)
                    }
                    Err(_) => Err(self.end_disconnected_request()),
                },
                RetryAction::ReturnError => return self.refuse_all_failed(&course, 1).await,
                RetryAction::GiveUp { retry_after } => {
                    return self.refuse_all_failed(&course, retry_after).await;
                }
            };
            next = match step_result {
                Ok(next) => next,
                Err(ended) => return Ok(ended),
            };
        }
    }

    /// Makes an attempt at one candidate; an error ends the request.
    async fn attempt_offer(
        &mut self,
        index: usize,
        held_permit: Option<OfferPermit>,
        course: &mut RetryPlanner,
    ) -> Result<RetryAction, WriteOutcome> {
        let offer = self.exchange.config.offers.get(index).cloned();
        let Some(offer) = offer.filter(|offer| !self.excludes_model(offer)) else {
            return Ok(course.on_skipped(self.now()));
        };
        let _permit = match self.upstream_peer(&offer, held_permit, course).await? {
            Ok(permit) => permit,
            Err(next) => return Ok(next),
        };
        let rescue = self.progress.has_content();
        let stop = match self.attempt(&offer, self.next_attempt_number()).await {
            Ok(ended) => return Err(ended),
            Err(stop) => stop,
        };
        let next = match stop {
            AttemptError::Fault(fault) if is_connect_failure(&fault) => {
                Some(self.fail_to_connect(&offer, &fault, rescue, course))
            }
            stop => self.error_while_proxy(&offer, stop, rescue, course),
        };
        next.ok_or_else(|| self.end_disconnected_request())
    }

    /// Returns the number of the next attempt, from 1, among those that the access log lists.
    fn next_attempt_number(&self) -> u32 {
        u32::try_from(self.exchange.record.attempts.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Acquires the permit of a candidate, as Pingora's `upstream_peer` returns a peer: `held_permit` if it is valid
    /// for the offer, or another. Without a permit it returns the next step; an error ends the request.
    async fn upstream_peer(
        &mut self,
        offer: &Arc<OfferState>,
        held_permit: Option<OfferPermit>,
        course: &mut RetryPlanner,
    ) -> Result<Result<OfferPermit, RetryAction>, WriteOutcome> {
        // A permit is valid only for its own offer.
        let held_permit = held_permit.filter(|permit| permit.offer().offer.index == offer.offer.index);
        Ok(match self.acquire_permit(offer, held_permit, course).await {
            Ok(AcquireOutcome::Permit(permit)) => Ok(permit),
            Ok(AcquireOutcome::Full) => Err(course.on_provider_full(self.now())),
            Ok(AcquireOutcome::Unavailable) => {
                self.had_unavailable = true;
                Err(course.on_skipped(self.now()))
            }
            Ok(AcquireOutcome::RetryAt(until)) => Err(course.on_cooldown(until, self.now())),
            Err(_) => return Err(self.end_disconnected_request()),
        })
    }

    fn new_retry_planner(&self) -> RetryPlanner {
        let routing = &self.exchange.config.settings.routing;
        let policy = AttemptPolicy {
            max_attempts: routing.attempts,
            deadline: self.exchange.app.clock.steady_at(self.deadline),
            max_retry_after: routing.max_retry_after_wait,
            quick_retry_delay: routing.quick_retry,
        };
        RetryPlanner::new(self.candidates.entries.iter().copied(), policy, rand::random())
    }

    fn now(&self) -> Duration {
        self.exchange.app.clock.steady_now()
    }

    /// Makes one attempt at an offer, from sending the request to the last byte for the client.
    async fn attempt(&mut self, offer: &Arc<OfferState>, number: u32) -> Result<WriteOutcome, AttemptError> {
        let begun = Instant::now();
        #[cfg(feature = "inject")]
        self.exchange
            .app
            .panic_injector
            .panic_if_armed(crate::net::panic_injection::PanicInjectionPoint::Attempt);
        let mut done = self.send_request(offer, number).await;
        done = self.retry_with_fewer_tokens(offer, number, done).await;
        done = self.retry_without_members(offer, number, done).await;
        done = self.retry_with_single_images(offer, number, done).await;
        if !matches!(done, Err(AttemptError::Disconnected | AttemptError::Interrupted)) {
            self.attempt_started = None;
        }
        let took = begun.elapsed();
        self.exchange.record.waited += took;
        let outcome = match &done {
            Ok(_) => "ok",
            Err(AttemptError::Fault(fault)) if fault.kind == UpstreamErrorKind::NoDescriptors => return done,
            Err(AttemptError::Fault(fault)) if fault.completed_choices.is_some() => "ok",
            Err(AttemptError::SeparateChoices(_)) => UpstreamErrorKind::Caller.name(),
            Err(AttemptError::Discarded(_)) => "discarded",
            Err(AttemptError::Fault(fault)) => fault.kind.name(),
            Err(AttemptError::Internal(_)) => "internal",
            Err(AttemptError::Disconnected | AttemptError::Interrupted) => settle::close_reason(self),
            Err(AttemptError::Incompatible(_)) => return done,
        };
        let note = AttemptRecord { provider: offer.offer.provider.id.clone(), outcome, duration: took };
        note.log_attempt(&self.exchange.id, &offer.offer.model.card.id, number);
        self.exchange.record.attempts.push(note);
        done
    }

    async fn send_request(
        &mut self,
        offer: &Arc<OfferState>,
        number: u32,
    ) -> Result<WriteOutcome, AttemptError> {
        self.memory.reset();
        self.sent_omissions = self.request_adjustment(offer).omitted;
        (self.completed, self.header_energy) = (CompletedCalls::default(), None);
        let done = if self.request.stream {
            streaming::attempt_stream(self, offer, number).await
        } else {
            buffered::attempt_buffered(self, offer, number).await
        };
        done.map_err(|error| attempt::reclassify_in_band_error(self, offer, error))
    }

    /// Waits for `span`, until a provider may be called again; an error ends the request.
    async fn pause_for(
        &mut self,
        span: Duration,
        course: &mut RetryPlanner,
    ) -> Result<RetryAction, WriteOutcome> {
        let began = clock::cached_now();
        let never = std::pin::pin!(std::future::pending::<()>());
        let until = (began + span).min(self.deadline);
        let outcome = self.watch.wait_for_work(&mut self.exchange.caller, never, until).await;
        self.exchange.record.waited += clock::cached_now().saturating_duration_since(began);
        match outcome {
            wait::WaitOutcome::Deadline => Ok(course.on_sleep_elapsed(self.now())),
            _ => Err(self.end_disconnected_request()),
        }
    }

    /// Ends the request of a client that disconnected, or a request that was interrupted. The client pays for the part that it
    /// received.
    fn end_disconnected_request(&mut self) -> WriteOutcome {
        settle::settle_interrupted_stream(self);
        settle::void_disconnected(self);
        WriteOutcome::Disconnected
    }
}
