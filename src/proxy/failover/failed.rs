//! Handling of a failed attempt: its cause, the next step, and the energy that it used.

use super::attempt::{self, AttemptError};
use super::separate_choices::SeparateChoices;
use super::{FailoverRun, settle, streaming};
use crate::proxy::exchange::WriteOutcome;
use crate::upstream::failure_log;
use crate::upstream::offer::{OfferState, unsupported_choices_error};
use penstock_core::{
    ApiError, ChoiceSelection, ErrorCode, InferenceTask, TokenUsage, UpstreamError, UpstreamErrorKind,
};
use penstock_routing::{AttemptOutcome, RetryAction, RetryPlanner};
use std::sync::Arc;
use std::time::Duration;

/// Message of a refusal if all providers of a model are at their limit.
const FULL_MESSAGE: &str = "Every provider of this model is at its limit; try again shortly.";

/// Returns true for an attempt that had no connection to its provider.
pub(super) fn is_connect_failure(fault: &UpstreamError) -> bool {
    fault.kind.is_connect_error() || fault.kind == UpstreamErrorKind::NoDescriptors
}

impl FailoverRun<'_, '_> {
    /// Chooses the next step after an attempt without a connection to its provider, as Pingora's `fail_to_connect`
    /// decides on a retry.
    pub(super) fn fail_to_connect(
        &mut self,
        offer: &Arc<OfferState>,
        fault: &UpstreamError,
        rescue: bool,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        if fault.kind != UpstreamErrorKind::NoDescriptors {
            return self.next_after_fault(offer, fault, rescue, course);
        }
        // The process has no free file descriptor: another provider may have an idle connection.
        let now = self.now();
        self.record_neutral_outcome(offer);
        self.had_unavailable = true;
        if !rescue {
            self.refusal = Some(ApiError::new(ErrorCode::Overloaded).with_retry_after(1));
        }
        course.on_skipped(now)
    }

    /// Chooses the next step after an attempt that failed on its connection, as Pingora's `error_while_proxy` decides
    /// on a retry; `None` if the client has disconnected, or if the request was interrupted.
    pub(super) fn error_while_proxy(
        &mut self,
        offer: &Arc<OfferState>,
        stop: AttemptError,
        rescue: bool,
        course: &mut RetryPlanner,
    ) -> Option<RetryAction> {
        match stop {
            AttemptError::Disconnected | AttemptError::Interrupted => {
                self.record_neutral_outcome(offer);
                None
            }
            AttemptError::SeparateChoices(scope) => {
                self.record_neutral_outcome(offer);
                self.separate_choices = Some(SeparateChoices::after_refusal(offer.clone(), scope));
                Some(RetryAction::ReturnError)
            }
            AttemptError::Discarded(usage) => {
                self.record_failed_energy(offer, usage.as_ref());
                Some(self.skip_offer(offer, ApiError::new(ErrorCode::Unavailable), course))
            }
            AttemptError::Fault(UpstreamError {
                completed_choices: Some(whole), discarded_usage, ..
            }) if self.request.has_separable_choices() => {
                self.record_neutral_outcome(offer);
                self.handle_fewer_choices(offer, whole, discarded_usage.as_deref());
                Some(RetryAction::ReturnError)
            }
            AttemptError::Fault(fault) if fault.completed_choices.is_some() => {
                self.record_neutral_outcome(offer);
                Some(self.refuse_choices(offer, &fault, course))
            }
            AttemptError::Incompatible(refusal) => Some(self.skip_offer(offer, refusal, course)),
            AttemptError::Internal(refusal) => {
                self.record_neutral_outcome(offer);
                self.record_failed_energy(offer, None);
                self.refusal = Some(refusal);
                Some(RetryAction::ReturnError)
            }
            // The refusal becomes an error of the client only if no other offer or fallback has a larger context
            // window.
            AttemptError::Fault(UpstreamError { api_error: Some(refusal), .. })
                if !self.progress.has_content() && refusal.code == ErrorCode::ContextLength =>
            {
                Some(self.refuse_long_input(offer, *refusal, course))
            }
            // The refusal is sent only if no other offer answers, and each of them failed for a reason of the request.
            AttemptError::Fault(UpstreamError {
                api_error: Some(refusal),
                may_be_provider: true,
                discarded_usage,
                ..
            }) if !self.progress.has_content() => {
                self.record_failed_energy(offer, discarded_usage.as_deref());
                Some(self.ask_other_offers(offer, *refusal, course))
            }
            AttemptError::Fault(fault) => Some(self.next_after_fault(offer, &fault, rescue, course)),
        }
    }

    /// Handles the refusal of an input that exceeds the context window of the offer: other offers with a larger window
    /// may take it.
    fn refuse_long_input(
        &mut self,
        offer: &Arc<OfferState>,
        refusal: ApiError,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        let window = offer.offer.context_length;
        self.exclude_windows_up_to(window, course);
        // Only one of several calls has an input that is too long.
        if self.completed.has_answers() {
            self.completed = self.completed.without_failed_call();
            self.record_failed_energy(offer, None);
        }
        self.ask_other_offers(offer, with_window_details(refusal, window), course)
    }

    /// Excludes the offers whose context window is at most `too_small`.
    fn exclude_windows_up_to(&self, too_small: u64, course: &mut RetryPlanner) {
        let offers = &self.exchange.config.offers;
        course.exclude_offers(|index| {
            offers.get(index).is_none_or(|offer| offer.offer.context_length <= too_small)
        });
    }

    /// Continues with another offer after a refusal that does not count against this one. The refusal is sent if no
    /// other offer could have answered.
    fn ask_other_offers(
        &mut self,
        offer: &Arc<OfferState>,
        refusal: ApiError,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        attempt::log_provider_refusal(self, offer, &refusal);
        self.skip_offer(offer, refusal, course)
    }

    /// Continues with another offer. The refusal is sent if no offer could have answered.
    fn skip_offer(
        &mut self,
        offer: &Arc<OfferState>,
        refusal: ApiError,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        self.record_neutral_outcome(offer);
        self.incompatible = Some(refusal);
        course.on_skipped(self.now())
    }

    /// Handles an offer that returned fewer choices than requested, if the choices cannot be requested one by one:
    /// another offer may return all of them. A stream that has begun is rescued by another offer; without one, it ends
    /// like a broken stream.
    fn refuse_choices(
        &mut self,
        offer: &Arc<OfferState>,
        fault: &UpstreamError,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        // An offer that answers only one of several prompts may give several answers to one prompt.
        if matches!(&self.request.task, InferenceTask::Complete(task) if task.choices_per_prompt > 1) {
            self.record_single_choice_offer(offer);
        }
        self.record_failed_energy(offer, fault.discarded_usage.as_deref());
        if self.progress.has_content() {
            self.had_unavailable = true;
            course.exclude_offers(|index| index == offer.offer.index);
            return self.next_after_recorded_fault(fault, course);
        }
        self.incompatible = Some(unsupported_choices_error(self.request));
        course.on_skipped(self.now())
    }

    /// Records a fault, and chooses the next step: another attempt, a rescue, or the end of the request.
    fn next_after_fault(
        &mut self,
        offer: &Arc<OfferState>,
        fault: &UpstreamError,
        rescue: bool,
        course: &mut RetryPlanner,
    ) -> RetryAction {
        let now = self.now();
        self.record_outcome(offer, fault, now);
        self.record_failure(offer, fault, rescue, now);
        // Malformed output of the model is charged as far as it was delivered: the output of another provider could
        // not be translated either.
        self.settled.charges_delivered |= fault.kind == UpstreamErrorKind::ModelOutput;
        self.next_after_recorded_fault(fault, course)
    }

    fn next_after_recorded_fault(&self, fault: &UpstreamError, course: &mut RetryPlanner) -> RetryAction {
        let now = self.now();
        let budget = &mut self.exchange.app.retry_budget.lock();
        if !self.progress.has_content() {
            course.on_failure(fault, now, budget)
        } else if self.candidates.rescue {
            course.on_stream_failure(fault, now, budget)
        } else {
            course.on_unrecoverable_stream_failure(fault, now)
        }
    }

    /// Records a failure for the offer, and for others of its provider.
    fn record_outcome(&self, offer: &Arc<OfferState>, fault: &UpstreamError, now: Duration) {
        // A failed connection or a refused provider key is not caused by a request.
        let client = Some(self.exchange.principal.breaker_client).filter(|_| !fault.kind.is_provider_wide());
        offer.record_outcome(now, self.admission, AttemptOutcome::from(fault), client, None);
        if fault.kind.is_connect_error() {
            let others = self.exchange.config.offers_of_provider(offer.offer.provider.index);
            others.filter(|other| !Arc::ptr_eq(other, offer)).for_each(|other| other.record_unreachable(now));
        }
    }

    fn record_failure(
        &mut self,
        offer: &Arc<OfferState>,
        fault: &UpstreamError,
        rescue: bool,
        now: Duration,
    ) {
        self.had_unavailable = true;
        // Output used energy even if the attempt failed after it.
        let discarded = fault.discarded_usage.as_deref();
        let had_output = self.translation.as_deref().is_some_and(|reply| reply.attempt_usage().output > 0)
            || discarded.is_some_and(|usage| usage.output > 0);
        let is_processed = fault.api_error.is_none() && settle::has_processed_prompt(fault.kind);
        if !is_processed {
            self.completed = self.completed.without_failed_call();
        }
        if had_output || is_processed || self.completed.has_answers() {
            self.record_failed_energy(offer, discarded);
        }
        if let Some(refusal) = &fault.api_error {
            attempt::log_provider_refusal(self, offer, refusal);
            // If a provider fails while it rescues a broken stream, its error does not replace the error that broke
            // the stream.
            if !rescue {
                self.refusal = Some((**refusal).clone());
            }
            return;
        }
        *offer.provider.last_error.lock() = Some((now, fault.kind.name()));
        failure_log::log_failure(offer, fault.kind);
    }

    /// Records the energy of the last attempt, which led to no response. `discarded` is the usage of a buffered answer
    /// that was read.
    pub(super) fn record_failed_energy(&mut self, offer: &OfferState, discarded: Option<&TokenUsage>) {
        let took = self.exchange.record.attempts.last().map_or(Duration::ZERO, |note| note.duration);
        let usage =
            discarded.copied().or_else(|| self.translation.as_deref().map(|reply| reply.attempt_usage()));
        self.failed_energy.add_failed_attempt(offer, self.request, usage, self.completed, took);
    }

    /// Tells a client that is still connected why its request was interrupted: an error response, or the error event of
    /// a stream that has begun. A complete answer that could not be delivered is no refusal.
    pub(super) async fn refuse_interrupted(
        &mut self,
        ended: Result<WriteOutcome, ApiError>,
    ) -> Result<WriteOutcome, ApiError> {
        let is_answered = if self.progress.has_head() {
            self.translation.is_none() && self.settled.ledger_ticket.is_some()
        } else {
            self.exchange.caller.has_response_head()
        };
        let is_cut = matches!(ended, Ok(WriteOutcome::Disconnected))
            && !is_answered
            && self.exchange.caller.in_process_line().is_none();
        match self.exchange.interruption_error().filter(|_| is_cut) {
            None => ended,
            Some(refusal) if self.progress.has_head() => Ok(streaming::fail_stream(self, &refusal).await),
            Some(refusal) => Err(refusal),
        }
    }

    /// Ends a request that no provider answered, or whose broken stream no provider continued.
    pub(super) async fn refuse_all_failed(
        &mut self,
        course: &RetryPlanner,
        retry_after: u32,
    ) -> Result<WriteOutcome, ApiError> {
        settle::end_failed_request(self);
        self.had_unavailable |= course.has_alternatives();
        self.all_full = course.has_only_full_offers();
        let incompatible = self.incompatible.take().filter(|_| !self.had_unavailable);
        let refusal = self.refusal.take().or(incompatible).unwrap_or_else(|| {
            let providers = &self.exchange.config.providers;
            let name = |index: usize| providers.get(index).map_or("", |provider| &*provider.provider.id);
            let refusal = match course.has_only_full_offers() {
                true => ApiError::with_message(ErrorCode::Unavailable, FULL_MESSAGE),
                false => self.candidates.unavailable_error(),
            };
            refusal
                .with_details_member("attempts", course.failed_attempts_json(name))
                .with_retry_after(retry_after)
        });
        // The refusal of a single choice is not written here, but by the exchange that requested all choices.
        if !self.progress.has_head() || self.choices != ChoiceSelection::All {
            return Err(refusal);
        }
        Ok(streaming::fail_stream(self, &refusal).await)
    }
}

/// Adds the numbers that a provider did not state to its refusal of an input that exceeds the context window.
fn with_window_details(refusal: ApiError, window: u64) -> ApiError {
    let number = |name: &str| refusal.details.get(name).and_then(serde_json::Value::as_u64);
    let window = number("context_length").unwrap_or(window);
    match number("input_tokens") {
        Some(_) => refusal.with_details_member("context_length", window),
        None => refusal
            .with_details_member("context_length", window)
            .with_details_member("input_tokens", window.saturating_add(1))
            .with_details_member("input_tokens_at_least", true),
    }
}
