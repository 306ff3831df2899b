//! Permit of the provider that is to be asked: it is free, waited for, or given up by a line of a batch.

use super::attempt::Stop;
use super::wait::Woken;
use super::{Run, streaming};
use crate::limits::admission_control::Why;
use crate::upstream::offer::{OfferLive, Seat, Waiting};
use penstock_limits::Work;
use penstock_routing::{Course, Outcome};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of an interactive request for the permit of a line that was asked to give it up.
const ASKED_BACK: Duration = Duration::from_secs(1);
/// Timer of a wait without a deadline.
const LONG: Duration = Duration::from_secs(3_600);
/// Interval at which a waiting batch request checks whether the gateway needs its admission permit.
const LOOK: Duration = Duration::from_millis(500);

/// Outcome of acquiring a permit.
pub(super) enum Sat {
    /// Permit.
    Seat(Seat),
    /// Provider that must not be asked, or batch work that has waited too long.
    Not,
    /// Provider that must not be asked before this time.
    Rests(Duration),
    /// Provider at its limit.
    Full,
}

impl Run<'_, '_> {
    /// Acquires a permit of the provider if its breaker allows a request: the one that is `kept` already, or another.
    /// Batch work waits in the queue; other requests get the permit of a line, or move on from a provider that is full.
    pub(super) async fn seat(
        &mut self,
        offer: &Arc<OfferLive>,
        kept: Option<Seat>,
        course: &mut Course,
    ) -> Result<Sat, Stop> {
        if let Some(not) = self.may_not_ask(offer) {
            return Ok(not);
        }
        if let Some(seat) = kept {
            return Ok(Sat::Seat(seat));
        }
        let batch = self.chosen.batch;
        let whose = &self.x.grant.account.id;
        let waiting = if batch { Some(offer.queue(whose, self.x.caller.asked_back())) } else { None };
        let waiting = match waiting {
            None => match offer.sit() {
                Some(seat) => return Ok(Sat::Seat(seat)),
                None => offer.ask_back(whose),
            },
            Some(Ok(seat)) => return Ok(Sat::Seat(seat)),
            Some(Err(waiting)) => Some(waiting),
        };
        // A probe that is not made is given back.
        offer.learn(self.now(), Outcome::Neutral, None, None);
        let Some(waiting) = waiting else { return Ok(Sat::Full) };
        let began = Instant::now();
        let seat = Box::pin(self.wait_for_seat(waiting, self.patience())).await;
        let waited = began.elapsed();
        self.x.record.queued += waited;
        if batch {
            // The queue of batch work is not the provider's time.
            self.deadline += waited;
            course.delayed(waited);
        }
        Ok(match seat? {
            Some(seat) => self.may_not_ask(offer).unwrap_or(Sat::Seat(seat)),
            None if batch => Sat::Not,
            None => Sat::Full,
        })
    }

    /// Waits a moment for a permit of any of the providers that are full, in turn with other accounts.
    pub(super) async fn queue(&mut self, course: &Course) -> Result<Option<Seat>, Stop> {
        let overload = self.x.live.settings.overload;
        self.missed = true;
        let offers = course.full(self.now()).filter_map(|index| self.x.live.offers.get(index).cloned());
        let waiting = Waiting::at(offers, &self.x.grant.account.id, overload.queue);
        let Some(waiting) = waiting else {
            self.x.house.overload.refused(Why::Queue);
            return Ok(None);
        };
        let began = Instant::now();
        let seat = Box::pin(self.wait_for_seat(waiting, overload.wait)).await;
        let waited = began.elapsed();
        self.x.record.queued += waited;
        self.x.house.metrics.queued("provider", waited);
        let seat = seat?;
        if seat.is_none() {
            self.x.house.overload.refused(Why::Provider);
        }
        Ok(seat)
    }

    /// Returns the reason why the provider must not be asked now, permit or not: its failures during the wait count
    /// too. `None` allows a request, which is a probe if the breaker is half open.
    fn may_not_ask(&self, offer: &OfferLive) -> Option<Sat> {
        let (now, mut breaker) = (self.now(), offer.breaker.lock());
        if let Some(until) = breaker.resting_until(now) {
            return Some(Sat::Rests(until));
        }
        (!breaker.try_probe(now) && !self.chosen.all_ejected).then_some(Sat::Not)
    }

    /// Returns the longest wait for a permit. A line with a single candidate waits until it is cancelled.
    fn patience(&self) -> Duration {
        match (self.chosen.batch, self.x.work) {
            (true, Work::BatchLine) if self.chosen.entries.len() == 1 => Duration::MAX,
            (true, _) => self.x.live.settings.routing.batch_wait,
            (false, _) => ASKED_BACK,
        }
    }

    /// Waits for a permit, at most `patience`. A stream that waits long is opened and kept alive meanwhile; if it fails
    /// then, it ends with an error event instead of a status.
    async fn wait_for_seat(
        &mut self,
        mut waiting: Waiting,
        patience: Duration,
    ) -> Result<Option<Seat>, Stop> {
        let now = Instant::now();
        let until = match self.x.work {
            _ if self.chosen.batch => now.checked_add(patience),
            Work::BatchLine | Work::Request => Some((now + patience).min(self.deadline)),
        };
        let beat = now + self.x.live.settings.limits.heartbeat;
        let in_the_way = self.chosen.batch && self.x.work == Work::Request;
        loop {
            if in_the_way && self.x.house.overload.is_crowded() {
                self.x.house.overload.refused(Why::Batch);
                return Ok(None);
            }
            let end = until.unwrap_or_else(|| Instant::now() + LONG);
            // After its head, each wait of a stream sends heartbeats.
            let unheard = self.ask.stream && !self.progress.has_head();
            let alarm = if unheard { end.min(beat) } else { end };
            let alarm = if in_the_way { alarm.min(Instant::now() + LOOK) } else { alarm };
            let seat = pin!(waiting.seat());
            match self.watch.race(&mut self.x.caller, seat, alarm).await {
                Woken::Done(seat) => return Ok(seat),
                Woken::Left => return Err(Stop::Left),
                Woken::Revoked => return Err(Stop::Revoked),
                Woken::Alarm if until.is_some_and(|until| Instant::now() >= until) => return Ok(None),
                Woken::Alarm if unheard && Instant::now() >= beat => streaming::keep_alive(self).await?,
                Woken::Alarm => {}
            }
        }
    }
}
