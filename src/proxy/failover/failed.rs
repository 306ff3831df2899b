//! Failure of an attempt: its cause, the next step, and the energy that it used.

use super::attempt::{self, Stop};
use super::fan::OneByOne;
use super::{Run, settle};
use crate::upstream::notice;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Code, Fault, FaultKind, Refusal};
use penstock_routing::{Course, Next, Outcome};
use std::sync::Arc;
use std::time::Duration;

impl Run<'_, '_> {
    /// Chooses the next step after an attempt that had no connection to its provider, as Pingora's `fail_to_connect`
    /// decides on a retry.
    pub(super) fn fail_to_connect(
        &mut self,
        offer: &Arc<OfferLive>,
        fault: &Fault,
        rescue: bool,
        course: &mut Course,
    ) -> Next {
        if fault.kind != FaultKind::Descriptors {
            return self.after_fault(offer, fault, rescue, course);
        }
        // The process has too many open files: another provider may have an idle connection.
        let now = self.now();
        offer.learn(now, Outcome::Neutral, None, None);
        self.missed = true;
        if !rescue {
            self.refusal = Some(Refusal::new(Code::Overloaded).retry_after(1));
        }
        course.pass(now)
    }

    /// Chooses the next step after an attempt that failed on its connection, as Pingora's `error_while_proxy` decides
    /// on a retry; `None` if the client has left.
    pub(super) fn error_while_proxy(
        &mut self,
        offer: &Arc<OfferLive>,
        stop: Stop,
        rescue: bool,
        course: &mut Course,
    ) -> Option<Next> {
        let now = self.now();
        match stop {
            Stop::Left | Stop::Revoked => {
                offer.learn(now, Outcome::Neutral, None, None);
                None
            }
            Stop::OneByOne => {
                offer.learn(now, Outcome::Neutral, None, None);
                self.one_by_one = Some(OneByOne::all(Some(offer.clone())));
                Some(Next::Refuse)
            }
            Stop::Fault(Fault { answered: Some(whole), .. }) if self.ask.n > 1 => {
                offer.learn(now, Outcome::Neutral, None, None);
                self.fewer(offer, whole);
                Some(Next::Refuse)
            }
            Stop::Pass(refusal) => {
                offer.learn(now, Outcome::Neutral, None, None);
                self.unsaid = Some(refusal);
                Some(course.pass(now))
            }
            Stop::Own(refusal) => {
                offer.learn(now, Outcome::Neutral, None, None);
                self.drew(offer);
                self.refusal = Some(refusal);
                Some(Next::Refuse)
            }
            // An error of the caller if no context window is larger; another offer or a fallback may have a larger one.
            Stop::Fault(Fault { refusal: Some(refusal), .. })
                if !self.progress.has_content() && refusal.code == Code::ContextLength =>
            {
                offer.learn(now, Outcome::Neutral, None, None);
                let too_small = offer.offer.context_length;
                let offers = &self.x.live.offers;
                course.leave_out(|index| {
                    offers.get(index).is_none_or(|offer| offer.offer.context_length <= too_small)
                });
                attempt::tell_refused(self, offer, &refusal);
                self.unsaid = Some(*refusal);
                Some(course.pass(now))
            }
            Stop::Fault(fault) => Some(self.after_fault(offer, &fault, rescue, course)),
        }
    }

    /// Records a fault, and chooses between another attempt, a rescue and the end.
    fn after_fault(
        &mut self,
        offer: &Arc<OfferLive>,
        fault: &Fault,
        rescue: bool,
        course: &mut Course,
    ) -> Next {
        let now = self.now();
        self.learn(offer, fault, now);
        self.remember(offer, fault, rescue, now);
        if fault.kind == FaultKind::ModelOutput {
            // It was delivered, and no other provider could write it either.
            settle::left(self);
        }
        let budget = &mut self.x.house.budget.lock();
        if !self.progress.has_content() {
            course.after(fault, now, budget)
        } else if self.chosen.rescue {
            course.rescue(fault, now, budget)
        } else {
            Next::GiveUp { retry_after: 1 }
        }
    }

    /// Records a failure for the offer, and for others of its provider.
    fn learn(&self, offer: &Arc<OfferLive>, fault: &Fault, now: Duration) {
        // A failed connection or a refused provider key is not due to a request.
        let client = Some(self.x.grant.client).filter(|_| !fault.kind.is_of_provider());
        offer.learn(now, Outcome::from(fault), client, None);
        if fault.kind.is_of_connection() {
            let others = self.x.live.offers_of(offer.offer.provider.index);
            others.filter(|other| !Arc::ptr_eq(other, offer)).for_each(|other| other.unreachable(now));
        }
    }

    fn remember(&mut self, offer: &Arc<OfferLive>, fault: &Fault, rescue: bool, now: Duration) {
        self.missed = true;
        // Output used energy, whatever followed it.
        let said = self.reply.as_deref().is_some_and(|reply| reply.worked().output > 0);
        if said || (fault.refusal.is_none() && settle::worked(fault.kind)) {
            self.drew(offer);
        }
        if let Some(refusal) = &fault.refusal {
            attempt::tell_refused(self, offer, refusal);
            // The error of a rescuer does not replace that of the broken stream.
            if !rescue {
                self.refusal = Some((**refusal).clone());
            }
            return;
        }
        *offer.provider.last_error.lock() = Some((now, fault.kind.name()));
        notice::failed(offer, fault.kind);
    }

    /// Records the energy of the last attempt, which led to no response.
    pub(super) fn drew(&mut self, offer: &OfferLive) {
        let took = self.x.record.attempts.last().map_or(Duration::ZERO, |note| note.took);
        self.spent.failed(offer, self.ask, self.reply.as_deref(), took);
    }
}
