//! The attempt planner: one for streamed and plain requests and every endpoint.
//!
//! ```text
//! let mut next = course.start(now);
//! loop { match next {
//!     Next::Try(offer) => match attempt(offer) {
//!         Ok(answer) => return answer,
//!         Err(fault) => next = course.after(&fault, now, &mut budget),
//!     },
//!     Next::RetrySame { after, .. } => { sleep(after); next = course.resume(now) }
//!     Next::WaitUntil(until) => { sleep_until(until); next = course.resume(now) }
//!     Next::Queue => match queue_at(course.full(now)) {
//!         Some(offer) => next = course.seated(offer, now),
//!         None => next = course.unseated(now),
//!     },
//!     Next::Refuse => return fault.refusal,
//!     Next::GiveUp { retry_after } => return unavailable(course.details(..), retry_after),
//! } }
//! ```
//!
//! Promises, whatever faults it is fed:
//!
//! - at most `attempts` tries, none after the deadline;
//! - an offer that failed is asked again only for a quick retry (500, 502, a
//!   reset; once per provider and request) or after the `Retry-After` it named;
//! - a provider is never asked before its `Retry-After`;
//! - an offer that was silent (no head, no token, or stalled) is never asked again, and other offers of its
//!   provider come after those of others;
//! - a provider to which a connection failed, or that does not take our key, is never asked again;
//! - after the caller's own fault, the total deadline, or a rescue whose text
//!   differs, nobody is asked;
//! - every try but the first is paid from the retry budget.
//!
//! A rescue after the first token is a try like any other: feed the fault that
//! broke the stream to [`Course::rescue`], and ask whom `Next` names.

mod attempt;
mod choice;
mod policy;

pub use attempt::Attempt;
pub use policy::{Entry, Policy};

use crate::budget::RetryBudget;
use crate::dice::Dice;
use choice::Step;
use penstock_contract::{Fault, FaultKind};
use serde_json::Value;
use std::time::Duration;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask this offer.
    Try(usize),
    /// Sleep, then [`Course::resume`]: it will name the same offer again.
    RetrySame {
        /// The offer.
        offer: usize,
        /// For how long.
        after: Duration,
    },
    /// Sleep until this instant, then [`Course::resume`].
    WaitUntil(Duration),
    /// Those who may be asked are full: wait for a place at one of [`Course::full`].
    Queue,
    /// The caller is to blame: answer with the fault's refusal.
    Refuse,
    /// Nobody is left: 503.
    GiveUp {
        /// Whole seconds for `Retry-After`, 1 to 5.
        retry_after: u32,
    },
}

/// The attempts of one request, done and to come.
#[derive(Debug)]
pub struct Course {
    policy: Policy,
    seats: Vec<Seat>,
    dice: Dice,
    done: Vec<Attempt>,
    asked: u32,
    /// The seat that is being asked, and since when.
    running: Option<(usize, Duration)>,
    /// The seat that a sleep is for.
    reserved: Option<usize>,
    /// A place was waited for in vain.
    crowded: bool,
}

/// One offer's place in the plan.
#[derive(Debug)]
struct Seat {
    entry: Entry,
    /// It may be asked: never was, or named a time for the next try.
    open: bool,
    /// It was asked before; newcomers come first.
    asked: bool,
    /// Not before then.
    ready: Duration,
    /// Its provider may have its one quick retry.
    quick: bool,
    /// It could be asked if its provider were not full.
    full: bool,
    /// Another offer of its provider was silent.
    doubted: bool,
}

impl Course {
    /// A course along `plan`, best first. Offers of fallback models stand behind the model's own.
    #[must_use]
    pub fn new(plan: impl IntoIterator<Item = Entry>, policy: Policy, seed: u64) -> Self {
        let seat = |entry: Entry| Seat {
            entry,
            open: true,
            asked: false,
            ready: entry.resting_until.unwrap_or_default(),
            quick: entry.good_standing,
            full: false,
            doubted: false,
        };
        Self {
            policy,
            seats: plan.into_iter().map(seat).collect(),
            dice: Dice::new(seed),
            done: Vec::new(),
            asked: 0,
            running: None,
            reserved: None,
            crowded: false,
        }
    }

    /// The first step. Costs no budget.
    pub fn start(&mut self, now: Duration) -> Next {
        self.choose(now)
    }

    /// The step after a sleep.
    pub fn resume(&mut self, now: Duration) -> Next {
        match self.reserved.take() {
            Some(seat) if self.is_ready(seat, now) && now < self.policy.deadline => self.ask(seat, now),
            _ => self.choose(now),
        }
    }

    /// The step when the offer that was to be asked cannot be after all, for a
    /// reason of the house's own: its breaker refused, or the request cannot be
    /// said in its dialect. Nothing was sent, so it counts as no attempt.
    pub fn pass(&mut self, now: Duration) -> Next {
        self.unasked(false);
        self.choose(now)
    }

    /// The step when the provider of the offer that was to be asked is full. Others come first; when there are
    /// none, a place is waited for.
    pub fn passed_full(&mut self, now: Duration) -> Next {
        self.unasked(true);
        self.choose(now)
    }

    /// Leaves these offers out from now on, full and resting ones too: they would answer as another did.
    pub fn leave_out(&mut self, which: impl Fn(usize) -> bool) {
        let seats = self.seats.iter_mut().filter(|seat| which(seat.entry.offer));
        seats.for_each(|seat| (seat.open, seat.full) = (false, false));
    }

    /// Somebody who could not be asked in time might answer at another.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.seats.iter().any(|seat| seat.open || seat.full)
    }

    /// The step when the offer that was to be asked rests until `ready`, as others have learnt since the plan was
    /// made. It may be waited for like one that asked this request for the rest.
    pub fn rests(&mut self, ready: Duration, now: Duration) -> Next {
        if let Some(seat) = self.unasked(false) {
            seat.open = true;
            seat.ready = seat.ready.max(ready);
        }
        self.choose(now)
    }

    fn unasked(&mut self, full: bool) -> Option<&mut Seat> {
        let (index, _) = self.running.take()?;
        self.asked = self.asked.saturating_sub(1);
        let seat = self.seats.get_mut(index)?;
        (seat.open, seat.full) = (false, full);
        seat.asked = self.done.iter().any(|attempt| attempt.offer == seat.entry.offer);
        Some(seat)
    }

    /// Offers that could be asked now, but that their providers are full.
    pub fn full(&self, now: Duration) -> impl Iterator<Item = usize> {
        self.seats.iter().filter(move |seat| seat.full && seat.ready <= now).map(|seat| seat.entry.offer)
    }

    /// The step when there is a place at one of them.
    pub fn seated(&mut self, offer: usize, now: Duration) -> Next {
        let at =
            self.seats.iter().position(|seat| seat.full && seat.ready <= now && seat.entry.offer == offer);
        match at {
            Some(index) if self.asked < self.policy.attempts && now < self.policy.deadline => {
                if let Some(seat) = self.seats.get_mut(index) {
                    seat.full = false;
                }
                self.ask(index, now)
            }
            _ => self.unseated(now),
        }
    }

    /// The step when nobody made a place in time.
    pub fn unseated(&mut self, now: Duration) -> Next {
        self.seats.iter_mut().for_each(|seat| seat.full = false);
        self.crowded = true;
        self.choose(now)
    }

    /// Nobody was asked, since those who might have been were full.
    #[must_use]
    pub const fn was_crowded(&self) -> bool {
        self.crowded && self.done.is_empty()
    }

    /// The step after a failed attempt, which is recorded.
    pub fn after(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget) -> Next {
        self.step(fault, now, budget, false)
    }

    /// The step after an attempt that failed when the client already had some
    /// of its answer. As [`Course::after`], but a quick retry comes only when
    /// nobody else is ready: the provider just dropped a stream half way.
    pub fn rescue(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget) -> Next {
        self.step(fault, now, budget, true)
    }

    fn step(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget, others_first: bool) -> Next {
        let Some((index, since)) = self.running.take() else { return self.give_up(now) };
        let Some(provider) = self.record(index, fault, since, now) else { return self.give_up(now) };
        if matches!(fault.kind, FaultKind::Caller | FaultKind::ModelOutput) {
            return Next::Refuse;
        }
        // A rescue that differs from what the client has is the end: another might differ elsewhere.
        if matches!(fault.kind, FaultKind::Deadline | FaultKind::Diverged) {
            return self.give_up(now);
        }
        if fault.kind.is_of_provider() {
            self.of_provider(provider, |seat| (seat.open, seat.full) = (false, false));
        } else if is_silence(fault.kind) {
            self.of_provider(provider, |seat| seat.doubted = true);
        } else if let Some(rest) = fault.retry_after {
            let ready = now.saturating_add(rest);
            self.of_provider(provider, |seat| seat.ready = seat.ready.max(ready));
            if let Some(seat) = self.seats.get_mut(index) {
                seat.open = true;
            }
        }
        let next = self.next(index, provider, fault, now, others_first);
        if matches!(next, Step::Stop) || !budget.try_spend(now) {
            return self.give_up(now);
        }
        self.take(next, now)
    }

    /// The request waited for its turn: that long the deadline is later.
    pub fn delayed(&mut self, by: Duration) {
        self.policy.deadline = self.policy.deadline.saturating_add(by);
    }

    /// Failed attempts so far, in order.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.done
    }

    /// Attempts begun so far, the running or good one included (`x-penstock-attempts`).
    #[must_use]
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// `details.attempts` of a 503: an array of `{"provider","reason","ms"}`.
    /// `provider` names a provider by the index its [`Entry`] had.
    pub fn details<'a>(&self, provider: impl Fn(usize) -> &'a str) -> Value {
        self.done.iter().map(|attempt| attempt.to_json(provider(attempt.provider))).collect()
    }

    /// Marks the attempt as over; tells whose it was.
    fn record(&mut self, index: usize, fault: &Fault, since: Duration, now: Duration) -> Option<usize> {
        let seat = self.seats.get_mut(index)?;
        seat.open = false;
        let Entry { offer, provider, .. } = seat.entry;
        let millis = u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX);
        self.done.push(Attempt { offer, provider, kind: fault.kind, millis });
        Some(provider)
    }

    fn choose(&mut self, now: Duration) -> Next {
        let step = if self.asked >= self.policy.attempts || now >= self.policy.deadline {
            Step::Stop
        } else {
            self.best(now)
        };
        self.take(step, now)
    }

    fn take(&mut self, step: Step, now: Duration) -> Next {
        match step {
            Step::Ask(index) => self.ask(index, now),
            Step::Wait(index) => {
                self.reserved = Some(index);
                self.seats
                    .get(index)
                    .map_or(Next::GiveUp { retry_after: 1 }, |seat| Next::WaitUntil(seat.ready))
            }
            Step::Quick(index, after) => {
                self.reserved = Some(index);
                let Some(seat) = self.seats.get_mut(index) else { return self.give_up(now) };
                seat.open = true;
                Next::RetrySame { offer: seat.entry.offer, after }
            }
            Step::Queue => Next::Queue,
            Step::Stop => self.give_up(now),
        }
    }

    fn ask(&mut self, index: usize, now: Duration) -> Next {
        let Some(seat) = self.seats.get_mut(index) else { return self.give_up(now) };
        seat.asked = true;
        self.asked = self.asked.saturating_add(1);
        self.running = Some((index, now));
        Next::Try(seat.entry.offer)
    }

    /// The soonest end of a rest if there is one, else 1 to 3 by chance, so
    /// that clients who failed together do not come back together.
    fn give_up(&mut self, now: Duration) -> Next {
        let soonest =
            self.seats.iter().filter(|seat| seat.open && seat.ready > now).map(|seat| seat.ready).min();
        let retry_after = match soonest {
            Some(ready) => {
                let wait = ready.saturating_sub(now);
                let whole = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
                u32::try_from(whole.clamp(1, 5)).unwrap_or(5)
            }
            None => 1 + u32::try_from(self.dice.below(3)).unwrap_or(0),
        };
        Next::GiveUp { retry_after }
    }

    fn is_ready(&self, index: usize, now: Duration) -> bool {
        self.seats.get(index).is_some_and(|seat| seat.open && seat.ready <= now)
    }

    fn of_provider(&mut self, provider: usize, change: impl Fn(&mut Seat)) {
        self.seats.iter_mut().filter(|seat| seat.entry.provider == provider).for_each(change);
    }
}

/// It had the time and said nothing: asking again would only lose more. One model's silence says little of others.
const fn is_silence(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::FirstByte | FaultKind::FirstToken | FaultKind::Idle)
}
