//! Retry planner of one request, for all endpoints, streamed or not.
//!
//! ```text
//! let mut next = planner.first_step(now);
//! loop { match next {
//!     RetryAction::Attempt(offer) => match attempt(offer) {
//!         Ok(answer) => return answer,
//!         Err(fault) => next = planner.on_failure(&fault, now, &mut budget),
//!     },
//!     RetryAction::RetrySame { after, .. } => { sleep(after); next = planner.on_sleep_elapsed(now) }
//!     RetryAction::WaitUntil(until) => { sleep_until(until); next = planner.on_sleep_elapsed(now) }
//!     RetryAction::WaitForPermit => match wait_for_permit(planner.full_offers(now)) {
//!         Some(offer) => next = planner.on_permit(offer, now),
//!         None => next = planner.on_permit_timeout(now),
//!     },
//!     RetryAction::ReturnError => return fault.api_error,
//!     RetryAction::GiveUp { retry_after } => return unavailable(planner.failed_attempts_json(..), retry_after),
//! } }
//! ```
//!
//! Guarantees, for any sequence of failures:
//!
//! - at most [`AttemptPolicy::max_attempts`] attempts, none after the deadline;
//! - a failed offer is used again only for a quick retry (after 500, 502 or a reset; once per provider and request)
//!   or after the `Retry-After` that it returned;
//! - no request to a provider before its `Retry-After`;
//! - an offer that timed out (no head, no token, or a stalled stream) is not retried, and other offers of its provider
//!   come after those of other providers;
//! - a provider whose connection failed, or that rejects the operator's key, is not retried;
//! - no attempt follows an error of the caller, model output that cannot be forwarded, the end of the total deadline,
//!   or a rescue whose text differs from the text already sent;
//! - every attempt but the first is taken from the retry budget.
//!
//! A rescue, which continues an answer after its first token, is an attempt like any other: the caller passes the
//! failure of the stream to [`RetryPlanner::on_stream_failure`] and follows the returned [`RetryAction`].

mod attempt;
mod next;
mod policy;
mod step;

pub use attempt::FailedAttempt;
pub use policy::{AttemptPolicy, PlannedOffer};
pub use step::RetryAction;

use crate::budget::RetryBudget;
use crate::rng::SplitMix64;
use next::RetryDecision;
use penstock_core::{UpstreamError, UpstreamErrorKind};
use serde_json::Value;
use std::time::Duration;

/// State of the attempts of one request.
#[derive(Debug)]
pub struct RetryPlanner {
    policy: AttemptPolicy,
    offers: Vec<OfferState>,
    rng: SplitMix64,
    failed: Vec<FailedAttempt>,
    /// Number of attempts started, including the running one.
    asked: u32,
    /// Index in `offers` of the running attempt's offer, and the start time of the attempt; `None` between attempts.
    running: Option<(usize, Duration)>,
    /// Index in `offers` of the offer that the caller uses after its current sleep; `None` if it does not sleep.
    waiting_for: Option<usize>,
    /// True if a wait for a permit timed out.
    permit_timed_out: bool,
}

/// State of one offer of the plan during a request.
#[derive(Debug)]
struct OfferState {
    planned: PlannedOffer,
    /// True if the offer may be used: it is untried, gets a quick retry, or returned a `Retry-After`.
    is_eligible: bool,
    /// True if the offer was tried; untried offers come first.
    was_attempted: bool,
    /// Earliest time of the next attempt.
    ready_at: Duration,
    /// True if the only quick retry for the provider of the offer is still available in this request.
    can_retry_quickly: bool,
    /// True if the only obstacle to an attempt is that the provider is at its concurrency limit.
    is_full: bool,
    /// True if another offer of the same provider timed out.
    provider_timed_out: bool,
}

impl RetryPlanner {
    /// Returns a planner for the offers of `plan`, best first. Offers of fallback models come after the offers of the
    /// requested model.
    #[must_use]
    pub fn new(plan: impl IntoIterator<Item = PlannedOffer>, policy: AttemptPolicy, seed: u64) -> Self {
        let state = |entry: PlannedOffer| OfferState {
            planned: entry,
            is_eligible: true,
            was_attempted: false,
            ready_at: entry.cooldown_until.unwrap_or_default(),
            can_retry_quickly: entry.is_stable,
            is_full: false,
            provider_timed_out: false,
        };
        Self {
            policy,
            offers: plan.into_iter().map(state).collect(),
            rng: SplitMix64::new(seed),
            failed: Vec::new(),
            asked: 0,
            running: None,
            waiting_for: None,
            permit_timed_out: false,
        }
    }

    /// Returns the first step. Takes nothing from the retry budget.
    pub fn first_step(&mut self, now: Duration) -> RetryAction {
        self.choose_next(now)
    }

    /// Returns the next step after the caller has slept.
    pub fn on_sleep_elapsed(&mut self, now: Duration) -> RetryAction {
        match self.waiting_for.take() {
            Some(index) if self.is_ready(index, now) && now < self.policy.deadline => {
                self.start_attempt(index, now)
            }
            _ => self.choose_next(now),
        }
    }

    /// Returns the step after the selected offer could not be used for a reason inside the gateway: its breaker is
    /// open, or its dialect cannot express the request. Nothing was sent, so this does not count as an attempt.
    pub fn on_skipped(&mut self, now: Duration) -> RetryAction {
        self.undo_attempt(false);
        self.choose_next(now)
    }

    /// Returns the step after the provider of the selected offer was found to be at its concurrency limit. Other offers
    /// come first; if there are none, the caller waits for a permit.
    pub fn on_provider_full(&mut self, now: Duration) -> RetryAction {
        self.undo_attempt(true);
        self.choose_next(now)
    }

    /// Excludes the given offers from all later attempts, even if they are full or in cooldown, because they would fail
    /// for the same reason as an earlier offer.
    pub fn exclude_offers(&mut self, which: impl Fn(usize) -> bool) {
        let states = self.offers.iter_mut().filter(|state| which(state.planned.offer));
        states.for_each(|state| (state.is_eligible, state.is_full) = (false, false));
    }

    /// Returns true if an offer other than the current one may still answer.
    #[must_use]
    pub fn has_alternatives(&self) -> bool {
        self.offers.iter().any(|state| state.is_eligible || state.is_full)
    }

    /// Returns the step after the selected offer was found to be in cooldown until `ready`. Other requests caused
    /// this cooldown after the plan was made. The planner may wait for its end like for a `Retry-After` of this
    /// request.
    pub fn on_cooldown(&mut self, ready: Duration, now: Duration) -> RetryAction {
        if let Some(state) = self.undo_attempt(false) {
            state.is_eligible = true;
            state.ready_at = state.ready_at.max(ready);
        }
        self.choose_next(now)
    }

    fn undo_attempt(&mut self, full: bool) -> Option<&mut OfferState> {
        let (index, _) = self.running.take()?;
        self.asked = self.asked.saturating_sub(1);
        let state = self.offers.get_mut(index)?;
        (state.is_eligible, state.is_full) = (false, full);
        state.was_attempted = self.failed.iter().any(|attempt| attempt.offer == state.planned.offer);
        Some(state)
    }

    /// Returns the offers that could be used now if their providers were not at their concurrency limit.
    pub fn full_offers(&self, now: Duration) -> impl Iterator<Item = usize> {
        self.offers
            .iter()
            .filter(move |state| state.is_full && state.ready_at <= now)
            .map(|state| state.planned.offer)
    }

    /// Returns the step after a permit was acquired at one of the full offers.
    pub fn on_permit(&mut self, offer: usize, now: Duration) -> RetryAction {
        let at = self
            .offers
            .iter()
            .position(|state| state.is_full && state.ready_at <= now && state.planned.offer == offer);
        match at {
            Some(index) if self.asked < self.policy.max_attempts && now < self.policy.deadline => {
                if let Some(state) = self.offers.get_mut(index) {
                    state.is_full = false;
                }
                self.start_attempt(index, now)
            }
            _ => self.on_permit_timeout(now),
        }
    }

    /// Returns the step after no permit was acquired in time.
    pub fn on_permit_timeout(&mut self, now: Duration) -> RetryAction {
        self.offers.iter_mut().for_each(|state| state.is_full = false);
        self.permit_timed_out = true;
        self.choose_next(now)
    }

    /// Returns true if a wait for a permit timed out and no attempt has failed: all usable offers were at the
    /// concurrency limits of their providers.
    #[must_use]
    pub const fn has_only_full_offers(&self) -> bool {
        self.permit_timed_out && self.failed.is_empty()
    }

    /// Records a failed attempt; returns the next step of the request.
    pub fn on_failure(
        &mut self,
        fault: &UpstreamError,
        now: Duration,
        budget: &mut RetryBudget,
    ) -> RetryAction {
        self.plan_next(fault, now, budget, false)
    }

    /// Records an attempt that failed when the client already had a part of its answer; returns the step after it. Same
    /// as [`RetryPlanner::on_failure`], but a quick retry is made only if no other offer is ready, because the provider
    /// has just broken a stream.
    pub fn on_stream_failure(
        &mut self,
        fault: &UpstreamError,
        now: Duration,
        budget: &mut RetryBudget,
    ) -> RetryAction {
        self.plan_next(fault, now, budget, true)
    }

    /// Records an attempt that failed when the client already had a part of an answer that no other offer can continue.
    pub fn on_unrecoverable_stream_failure(&mut self, fault: &UpstreamError, now: Duration) -> RetryAction {
        if let Some((index, since)) = self.running.take() {
            self.record_failure(index, fault, since, now);
        }
        RetryAction::GiveUp { retry_after: 1 }
    }

    fn plan_next(
        &mut self,
        fault: &UpstreamError,
        now: Duration,
        budget: &mut RetryBudget,
        others_first: bool,
    ) -> RetryAction {
        let Some((index, since)) = self.running.take() else { return self.give_up(now) };
        let Some(provider) = self.record_failure(index, fault, since, now) else { return self.give_up(now) };
        if matches!(fault.kind, UpstreamErrorKind::Caller | UpstreamErrorKind::ModelOutput) {
            return RetryAction::ReturnError;
        }
        // If a rescue generated another text than the delivered one, the request ends: a further attempt would
        // probably generate another text too.
        if matches!(fault.kind, UpstreamErrorKind::DeadlineExceeded | UpstreamErrorKind::Diverged) {
            return self.give_up(now);
        }
        if fault.kind.is_provider_wide() {
            self.for_each_of_provider(provider, |state| (state.is_eligible, state.is_full) = (false, false));
        } else if is_timeout(fault.kind) {
            self.for_each_of_provider(provider, |state| state.provider_timed_out = true);
        } else if let Some(rest) = fault.retry_after {
            let ready = now.saturating_add(rest);
            self.for_each_of_provider(provider, |state| state.ready_at = state.ready_at.max(ready));
            if let Some(state) = self.offers.get_mut(index) {
                state.is_eligible = true;
            }
        }
        let next = self.decide_after_failure(index, provider, fault, now, others_first);
        if matches!(next, RetryDecision::GiveUp) || !budget.try_spend(now) {
            return self.give_up(now);
        }
        self.apply_decision(next, now)
    }

    /// Extends the deadline by the time that the request was queued.
    pub fn extend_deadline(&mut self, queue_time: Duration) {
        self.policy.deadline = self.policy.deadline.saturating_add(queue_time);
    }

    /// Returns the failed attempts so far, in order.
    #[must_use]
    pub fn failed_attempts(&self) -> &[FailedAttempt] {
        &self.failed
    }

    /// Returns the number of attempts started, including the running or successful one (`x-penstock-attempts`).
    #[must_use]
    pub const fn started_attempt_count(&self) -> u32 {
        self.asked
    }

    /// Returns the value of `details.attempts` in a 503: an array of `{"provider","reason","ms"}`. `provider` returns
    /// the name of a provider by the index in its [`PlannedOffer`].
    pub fn failed_attempts_json<'a>(&self, provider: impl Fn(usize) -> &'a str) -> Value {
        self.failed.iter().map(|attempt| attempt.to_json(provider(attempt.provider))).collect()
    }

    /// Records a failed attempt, and returns the provider of its offer; `None` if there is no offer with this index.
    fn record_failure(
        &mut self,
        index: usize,
        fault: &UpstreamError,
        since: Duration,
        now: Duration,
    ) -> Option<usize> {
        let state = self.offers.get_mut(index)?;
        state.is_eligible = false;
        let PlannedOffer { offer, provider, .. } = state.planned;
        let millis = u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
        self.failed.push(FailedAttempt { offer, provider, kind: fault.kind, millis });
        Some(provider)
    }

    fn choose_next(&mut self, now: Duration) -> RetryAction {
        let step = if self.asked >= self.policy.max_attempts || now >= self.policy.deadline {
            RetryDecision::GiveUp
        } else {
            self.best_decision(now)
        };
        self.apply_decision(step, now)
    }

    fn apply_decision(&mut self, step: RetryDecision, now: Duration) -> RetryAction {
        match step {
            RetryDecision::Attempt(index) => self.start_attempt(index, now),
            RetryDecision::Wait(index) => {
                self.waiting_for = Some(index);
                self.offers.get(index).map_or(RetryAction::GiveUp { retry_after: 1 }, |state| {
                    RetryAction::WaitUntil(state.ready_at)
                })
            }
            RetryDecision::QuickRetry(index, after) => {
                self.waiting_for = Some(index);
                let Some(state) = self.offers.get_mut(index) else { return self.give_up(now) };
                state.is_eligible = true;
                RetryAction::RetrySame { offer: state.planned.offer, after }
            }
            RetryDecision::WaitForPermit => RetryAction::WaitForPermit,
            RetryDecision::GiveUp => self.give_up(now),
        }
    }

    fn start_attempt(&mut self, index: usize, now: Duration) -> RetryAction {
        let Some(state) = self.offers.get_mut(index) else { return self.give_up(now) };
        state.was_attempted = true;
        self.asked = self.asked.saturating_add(1);
        self.running = Some((index, now));
        RetryAction::Attempt(state.planned.offer)
    }

    /// Gives up. `Retry-After` is the time until the earliest end of a cooldown (limited to 1 to 5 seconds); without a
    /// cooldown, it is 1 to 3 seconds at random, so that clients do not all retry at the same time.
    fn give_up(&mut self, now: Duration) -> RetryAction {
        let soonest = self
            .offers
            .iter()
            .filter(|state| state.is_eligible && state.ready_at > now)
            .map(|state| state.ready_at)
            .min();
        let retry_after = match soonest {
            Some(ready) => {
                let wait = ready.saturating_sub(now);
                let whole = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
                u32::try_from(whole.clamp(1, 5)).unwrap_or(5)
            }
            None => 1 + u32::try_from(self.rng.random_below(3)).unwrap_or(0),
        };
        RetryAction::GiveUp { retry_after }
    }

    fn is_ready(&self, index: usize, now: Duration) -> bool {
        self.offers.get(index).is_some_and(|state| state.is_eligible && state.ready_at <= now)
    }

    fn for_each_of_provider(&mut self, provider: usize, change: impl Fn(&mut OfferState)) {
        self.offers.iter_mut().filter(|state| state.planned.provider == provider).for_each(change);
    }
}

/// Returns true for a timeout, after which a retry would lose more time. Other models of the provider are not
/// excluded, because the timeout of one model does not show that they are slow too.
const fn is_timeout(kind: UpstreamErrorKind) -> bool {
    matches!(
        kind,
        UpstreamErrorKind::FirstByteTimeout
            | UpstreamErrorKind::FirstTokenTimeout
            | UpstreamErrorKind::IdleTimeout
    )
}
