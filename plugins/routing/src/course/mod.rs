//! Retry planner of one request, for all endpoints, streamed or not.
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
//! Guarantees, for any sequence of failures:
//!
//! - at most `attempts` attempts, none after the deadline;
//! - a failed offer is retried only as a quick retry (500, 502, a reset; once per provider and request) or after the
//!   `Retry-After` it returned;
//! - no request to a provider before its `Retry-After`;
//! - an offer that timed out (no head, no token, or a stalled stream) is not retried, and other offers of its provider
//!   come after those of other providers;
//! - a provider whose connection failed, or that rejects the operator's key, is not retried;
//! - no attempt follows an error of the caller, the total deadline, or a rescue with different text;
//! - every attempt but the first is taken from the retry budget.
//!
//! A rescue after the first token is an attempt like any other: pass the failure of the stream to [`Course::rescue`]
//! and follow the returned `Next`.

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

/// Next step of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send the request to this offer.
    Try(usize),
    /// Sleep, then call [`Course::resume`], which returns the same offer again.
    RetrySame {
        /// Index of the offer.
        offer: usize,
        /// Time to sleep.
        after: Duration,
    },
    /// Sleep until this time, then call [`Course::resume`].
    WaitUntil(Duration),
    /// Providers of the usable offers are full: wait for a permit at one of [`Course::full`].
    Queue,
    /// Error of the caller: return the error of the failure.
    Refuse,
    /// No offer is left: return a 503.
    GiveUp {
        /// Value of `Retry-After`, 1 to 5 seconds.
        retry_after: u32,
    },
}

/// State of the attempts of one request.
#[derive(Debug)]
pub struct Course {
    policy: Policy,
    seats: Vec<Seat>,
    dice: Dice,
    done: Vec<Attempt>,
    asked: u32,
    /// Offer of the running attempt, and its start time.
    running: Option<(usize, Duration)>,
    /// Offer for which the caller sleeps.
    reserved: Option<usize>,
    /// True if a wait for a permit timed out.
    crowded: bool,
}

/// State of one planned offer.
#[derive(Debug)]
struct Seat {
    entry: Entry,
    /// True if the offer may be used: it is untried, or named a time for a retry.
    open: bool,
    /// True if the offer was tried; untried offers come first.
    asked: bool,
    /// Earliest time of the next attempt.
    ready: Duration,
    /// True if its provider may still have its one quick retry.
    quick: bool,
    /// True if only the full provider prevents an attempt.
    full: bool,
    /// True if another offer of its provider timed out.
    doubted: bool,
}

impl Course {
    /// Returns a planner for the offers of `plan`, best first. Offers of fallback models follow the model's own.
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

    /// First step. Takes nothing from the retry budget.
    pub fn start(&mut self, now: Duration) -> Next {
        self.choose(now)
    }

    /// Step after a sleep.
    pub fn resume(&mut self, now: Duration) -> Next {
        match self.reserved.take() {
            Some(seat) if self.is_ready(seat, now) && now < self.policy.deadline => self.ask(seat, now),
            _ => self.choose(now),
        }
    }

    /// Step if the selected offer cannot be used for a reason inside the gateway: its breaker is open, or its dialect
    /// cannot express the request. Nothing was sent, so this does not count as an attempt.
    pub fn pass(&mut self, now: Duration) -> Next {
        self.unasked(false);
        self.choose(now)
    }

    /// Step if the provider of the selected offer is full. Other offers come first; without any, the caller waits for a
    /// permit.
    pub fn passed_full(&mut self, now: Duration) -> Next {
        self.unasked(true);
        self.choose(now)
    }

    /// Excludes these offers from now on, including full offers and offers in cooldown, because they would answer as
    /// another did.
    pub fn leave_out(&mut self, which: impl Fn(usize) -> bool) {
        let seats = self.seats.iter_mut().filter(|seat| which(seat.entry.offer));
        seats.for_each(|seat| (seat.open, seat.full) = (false, false));
    }

    /// True if another offer may still answer.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.seats.iter().any(|seat| seat.open || seat.full)
    }

    /// Step if the selected offer is in cooldown until `ready`, learnt from other requests after the plan was made. The
    /// planner may wait for it as for a `Retry-After` of this request.
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

    /// Offers that could be used now if their providers were not full.
    pub fn full(&self, now: Duration) -> impl Iterator<Item = usize> {
        self.seats.iter().filter(move |seat| seat.full && seat.ready <= now).map(|seat| seat.entry.offer)
    }

    /// Step after a permit was acquired at one of the full offers.
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

    /// Step after no permit was acquired in time.
    pub fn unseated(&mut self, now: Duration) -> Next {
        self.seats.iter_mut().for_each(|seat| seat.full = false);
        self.crowded = true;
        self.choose(now)
    }

    /// True if no attempt was made because all usable offers were full.
    #[must_use]
    pub const fn was_crowded(&self) -> bool {
        self.crowded && self.done.is_empty()
    }

    /// Step after a failed attempt, which is recorded.
    pub fn after(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget) -> Next {
        self.step(fault, now, budget, false)
    }

    /// Step after an attempt failed when the client already had a part of its answer. Same as [`Course::after`], but a
    /// quick retry comes only if no other offer is ready, because the provider just broke a stream.
    pub fn rescue(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget) -> Next {
        self.step(fault, now, budget, true)
    }

    fn step(&mut self, fault: &Fault, now: Duration, budget: &mut RetryBudget, others_first: bool) -> Next {
        let Some((index, since)) = self.running.take() else { return self.give_up(now) };
        let Some(provider) = self.record(index, fault, since, now) else { return self.give_up(now) };
        if matches!(fault.kind, FaultKind::Caller | FaultKind::ModelOutput) {
            return Next::Refuse;
        }
        // A rescue with different text ends the request: another attempt might differ too.
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

    /// Extends the deadline by the time that the request was queued.
    pub fn delayed(&mut self, by: Duration) {
        self.policy.deadline = self.policy.deadline.saturating_add(by);
    }

    /// Failed attempts so far, in order.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.done
    }

    /// Number of attempts started, including the running or successful one (`x-penstock-attempts`).
    #[must_use]
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// Value of `details.attempts` in a 503: an array of `{"provider","reason","ms"}`. `provider` returns the name of a
    /// provider by the index of its [`Entry`].
    pub fn details<'a>(&self, provider: impl Fn(usize) -> &'a str) -> Value {
        self.done.iter().map(|attempt| attempt.to_json(provider(attempt.provider))).collect()
    }

    /// Records a failed attempt; returns its provider.
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

    /// Gives up. `Retry-After` is the earliest end of a cooldown if there is one, else a random 1 to 3 seconds, so that
    /// clients do not retry in step.
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

/// True for a timeout: a retry would lose more time. The timeout of one model proves little about others of the
/// provider.
const fn is_silence(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::FirstByte | FaultKind::FirstToken | FaultKind::Idle)
}
