//! Selection of the next offer: first untried offers, then offers whose `Retry-After` has passed, then offers of a
//! provider that timed out at another offer, then the offer whose cooldown ends first. After a transient failure, an
//! offer of a stable provider may get a quick retry. The planner may wait for a cooldown that ends before the
//! deadline.

use super::RetryPlanner;
use penstock_core::{UpstreamError, UpstreamErrorKind};
use std::time::Duration;

/// Decision of the planner that is not yet applied; the numbers are indexes of offers.
pub(super) enum RetryDecision {
    Attempt(usize),
    QuickRetry(usize, Duration),
    Wait(usize),
    WaitForPermit,
    GiveUp,
}

impl RetryPlanner {
    /// Decides the step after a failure, before the retry budget is checked.
    pub(super) fn decide_after_failure(
        &mut self,
        index: usize,
        provider: usize,
        fault: &UpstreamError,
        now: Duration,
        others_first: bool,
    ) -> RetryDecision {
        if self.asked >= self.policy.max_attempts || now >= self.policy.deadline {
            return RetryDecision::GiveUp;
        }
        if let Some(rest) = fault.retry_after {
            let patient = !rest.is_zero() && rest <= self.policy.max_retry_after && self.can_wait(index);
            return if patient { RetryDecision::Wait(index) } else { self.best_decision(now) };
        }
        let best = self.best_decision(now);
        if others_first && matches!(best, RetryDecision::Attempt(_)) {
            return best;
        }
        self.quick_retry(index, provider, fault.kind, now).unwrap_or(best)
    }

    /// Returns a retry at the same offer after a short delay, for a transient failure of a stable provider; once per
    /// provider and request; `None` if no such retry is permitted, or if it would start after the deadline.
    fn quick_retry(
        &mut self,
        index: usize,
        provider: usize,
        kind: UpstreamErrorKind,
        now: Duration,
    ) -> Option<RetryDecision> {
        let earned = allows_quick_retry(kind) && self.offers.get(index)?.can_retry_quickly;
        let after = self.jitter();
        if !earned || now.saturating_add(after) >= self.policy.deadline {
            return None;
        }
        self.for_each_of_provider(provider, |state| state.can_retry_quickly = false);
        Some(RetryDecision::QuickRetry(index, after))
    }

    /// Decides on the best offer: an attempt at the first untried one, or else at the first that may be retried; offers
    /// whose provider timed out come after all others. If no offer is ready, decides to wait for a permit of a full
    /// offer, or else for the cooldown that ends first, or else to give up.
    pub(super) fn best_decision(&self, now: Duration) -> RetryDecision {
        let open = || self.offers.iter().enumerate().filter(|(_, state)| state.is_eligible);
        let ready = open()
            .filter(|(_, state)| state.ready_at <= now)
            .min_by_key(|(_, state)| (state.provider_timed_out, state.was_attempted));
        if let Some((index, _)) = ready {
            return RetryDecision::Attempt(index);
        }
        if self.full_offers(now).next().is_some() {
            return RetryDecision::WaitForPermit;
        }
        match open().min_by_key(|(_, state)| state.ready_at) {
            Some((index, _)) if self.can_wait(index) => RetryDecision::Wait(index),
            _ => RetryDecision::GiveUp,
        }
    }

    fn can_wait(&self, index: usize) -> bool {
        self.offers.get(index).is_some_and(|state| state.is_eligible && state.ready_at < self.policy.deadline)
    }

    /// Returns a random delay, from half of the policy's `quick_retry_delay` to one and a half times of it.
    fn jitter(&mut self) -> Duration {
        let span = u64::try_from(self.policy.quick_retry_delay.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros((span / 2).saturating_add(self.rng.random_below(span.saturating_add(1))))
    }
}

/// Returns true for a transient failure after which the provider probably has the prompt in its prefix cache.
const fn allows_quick_retry(kind: UpstreamErrorKind) -> bool {
    matches!(kind, UpstreamErrorKind::Status(500 | 502) | UpstreamErrorKind::Reset)
}
