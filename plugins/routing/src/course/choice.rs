//! Selection of the next offer: first untried offers, then those that may be retried after a delay they named, then
//! offers of a provider that timed out at another offer, then the offer whose cooldown ends first. A stable provider
//! may be retried at once, and a short cooldown is waited for.

use super::Course;
use penstock_contract::{Fault, FaultKind};
use std::time::Duration;

/// Decision that is not applied yet, with the index of the offer.
pub(super) enum Step {
    Ask(usize),
    Quick(usize, Duration),
    Wait(usize),
    Queue,
    Stop,
}

impl Course {
    /// Decides the step after a failure, before the retry budget is checked.
    pub(super) fn next(
        &mut self,
        index: usize,
        provider: usize,
        fault: &Fault,
        now: Duration,
        others_first: bool,
    ) -> Step {
        if self.asked >= self.policy.attempts || now >= self.policy.deadline {
            return Step::Stop;
        }
        if let Some(rest) = fault.retry_after {
            let patient = !rest.is_zero() && rest <= self.policy.patience && self.may_wait(index);
            return if patient { Step::Wait(index) } else { self.best(now) };
        }
        let best = self.best(now);
        if others_first && matches!(best, Step::Ask(_)) {
            return best;
        }
        self.quick_retry(index, provider, fault.kind, now).unwrap_or(best)
    }

    /// Immediate retry after a transient failure of a stable provider, once per provider and request.
    fn quick_retry(&mut self, index: usize, provider: usize, kind: FaultKind, now: Duration) -> Option<Step> {
        let earned = earns_quick_retry(kind) && self.seats.get(index)?.quick;
        let after = self.jitter();
        if !earned || now.saturating_add(after) >= self.policy.deadline {
            return None;
        }
        self.of_provider(provider, |seat| seat.quick = false);
        Some(Step::Quick(index, after))
    }

    /// Best offer: the first untried one, then the first that may be retried, both of providers without a timeout
    /// before others; then the one whose cooldown ends first.
    pub(super) fn best(&self, now: Duration) -> Step {
        let open = || self.seats.iter().enumerate().filter(|(_, seat)| seat.open);
        let ready =
            open().filter(|(_, seat)| seat.ready <= now).min_by_key(|(_, seat)| (seat.doubted, seat.asked));
        if let Some((index, _)) = ready {
            return Step::Ask(index);
        }
        if self.full(now).next().is_some() {
            return Step::Queue;
        }
        match open().min_by_key(|(_, seat)| seat.ready) {
            Some((index, _)) if self.may_wait(index) => Step::Wait(index),
            _ => Step::Stop,
        }
    }

    fn may_wait(&self, index: usize) -> bool {
        self.seats.get(index).is_some_and(|seat| seat.open && seat.ready < self.policy.deadline)
    }

    /// Random delay, half to one and a half of `quick_retry`.
    fn jitter(&mut self) -> Duration {
        let span = u64::try_from(self.policy.quick_retry.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros((span / 2).saturating_add(self.dice.below(span.saturating_add(1))))
    }
}

/// True for a transient failure at a provider whose prefix cache is now warm.
const fn earns_quick_retry(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Status(500 | 502) | FaultKind::Reset)
}
