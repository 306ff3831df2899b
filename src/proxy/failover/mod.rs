//! Failover driver: a loop that asks one provider after another until one answers.
//!
//! ```text
//! request filters ─▶ course ─▶ upstream_peer ─▶ attempt ─▶ (plain | pump: response filters) ─▶ settle
//!                       ▲                          │ fail_to_connect       │ error_while_proxy
//!                       └──────────────────────────┴───────────────────────┘ another provider, or a rescue
//! ```
//! Before the first content token the client has received no content, and a failure is invisible. After it, a stream is
//! rescued, or ends with an error event.
//!
//! The driver calls the hooks of Pingora's response phases itself, in Pingora's order: the loop of pingora-proxy 0.9
//! replays no request body above 64 KiB, and sends the response head before the first token.

mod acquire;
mod attempt;
mod buffered;
mod failed;
mod fan;
mod filtered;
mod images;
mod mismatch;
mod response_memory;
mod select;
mod settle;
mod streaming;
mod wait;

pub(crate) use attempt::Stop;
pub(crate) use fan::Part;
pub use select::{Moment, Selection};
pub use settle::{FLAVOR, images};

use crate::billing::Hold;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::filters::{InferenceRequest, RequestBody, RequestFilterChain, RequestFilters};
use crate::storage::spool::Spooled;
use crate::telemetry::AttemptNote;
use crate::time::clock;
use crate::upstream::offer::{OfferLive, Seat};
use acquire::Sat;
use fan::OneByOne;
use penstock_contract::{Ask, Choices, Code, Extras, Fault, FaultKind, Refusal, Reply, Rescue};
use penstock_routing::{Course, Next, Policy};
pub use response_memory::FREE;
use response_memory::Weight;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wait::Watch;

/// Message of a refusal if all providers of a model are at their limit.
const FULL: &str = "Every provider of this model is at its limit; try again shortly.";

/// Progress of a streamed response towards the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResponseProgress {
    /// No byte has been sent: a failure leads to a status or to another provider.
    Waiting,
    /// The head has been sent: a failure leads to an error event or to another provider.
    HeadSent,
    /// Content has been sent: only a rescue may follow a failure.
    ContentSent,
}

impl ResponseProgress {
    fn has_head(self) -> bool {
        self >= Self::HeadSent
    }

    fn has_content(self) -> bool {
        self >= Self::ContentSent
    }
}

/// State of an inference request during its attempts.
struct Run<'r, 'a> {
    x: &'r mut Exchange<'a>,
    ask: &'r Ask,
    /// File of a form.
    upload: Option<Spooled>,
    chosen: Selection,
    watch: Watch,
    /// Deadline of the request.
    deadline: Instant,
    /// Translation of the stream, which lasts from one provider to the next.
    reply: Option<Box<dyn Reply>>,
    /// Offer whose stream the client is reading.
    current: Option<Arc<OfferLive>>,
    /// Start of its attempt while that runs: the energy may only be known by the time.
    asked: Option<Instant>,
    /// Progress of a streamed response towards the client.
    progress: ResponseProgress,
    /// Memory of the response.
    weight: Weight,
    /// Energy of failed attempts.
    spent: settle::Spent,
    /// Reserved credits, until they are settled or voided.
    hold: Option<Hold>,
    /// Time of the request, Unix seconds: its prices apply.
    at: u64,
    /// Ledger entry to wait for if the charge has to be on the disk.
    ticket: Option<u64>,
    /// Refusal if no provider answers: an error of the caller, once a provider reported one.
    refusal: Option<Refusal>,
    /// Refusal if no provider could have answered: an incompatible request, or one too long for all windows.
    unsaid: Option<Refusal>,
    /// True if a provider failed or was not available: a later request might succeed.
    missed: bool,
    /// Choices of the client's request that this run serves.
    choices: Choices,
    /// Members of the gateway's own that the current offer refused.
    left_out: Extras,
    /// Choices that are to be requested one by one.
    one_by_one: Option<OneByOne>,
    /// True if all candidates were at their limit.
    crowded: bool,
}

/// Returns true for an attempt that had no connection to its provider.
fn is_before_connection(fault: &Fault) -> bool {
    fault.kind.is_of_connection() || fault.kind == FaultKind::Descriptors
}

/// Answers an inference request: runs the request filters, then asks one candidate after another.
///
/// # Errors
/// The refusal, as long as nothing has been sent.
pub async fn run(x: &mut Exchange<'_>, body: RequestBody) -> Result<Ended, Refusal> {
    let mut request = InferenceRequest::new(x, body);
    if let ControlFlow::Break(ended) = RequestFilters::check(&mut request).await? {
        return Ok(ended);
    }
    let InferenceRequest { x, ask: Some(ask), candidates: Some(chosen), upload, at, hold, .. } = request
    else {
        return Err(Refusal::new(Code::Internal));
    };
    x.house.budget.lock().on_request(x.house.clock.now());
    let total = x.live.settings.routing.total;
    let mut run = Run {
        watch: Watch::new(x.grant.clone(), x.live.settings.limits.heartbeat),
        // From here on: the time in which the client sent its body is not the providers' time.
        deadline: clock::now() + total,
        x,
        ask: &ask,
        upload,
        chosen,
        reply: None,
        current: None,
        asked: None,
        progress: ResponseProgress::Waiting,
        weight: Weight::new(),
        spent: settle::Spent::default(),
        hold,
        at,
        ticket: None,
        refusal: None,
        unsaid: None,
        missed: false,
        choices: Choices::All,
        left_out: Extras::NONE,
        one_by_one: None,
        crowded: false,
    };
    run.drive().await
}

impl Run<'_, '_> {
    /// Runs the attempt loop.
    async fn drive(&mut self) -> Result<Ended, Refusal> {
        let mut course = self.course();
        let mut next = course.start(self.now());
        let mut kept = None;
        loop {
            if let Some(wanted) = self.one_by_one.take() {
                return Box::pin(fan::run(self, wanted, &course)).await;
            }
            let went_on = match next {
                Next::Try(index) if self.gives_one(index) => Ok(self.split(&mut course)),
                Next::Try(index) => self.try_it(index, kept.take(), &mut course).await,
                Next::RetrySame { after, .. } => self.pause(after, &mut course).await,
                Next::WaitUntil(until) => self.pause(until.saturating_sub(self.now()), &mut course).await,
                Next::Queue => match self.queue(&course).await {
                    Ok(seat) => {
                        let next = match &seat {
                            Some(seat) => course.seated(seat.offer().offer.index, self.now()),
                            None => course.unseated(self.now()),
                        };
                        kept = seat.filter(|_| matches!(next, Next::Try(_)));
                        Ok(next)
                    }
                    Err(_) => Err(self.left()),
                },
                Next::Refuse => return self.give_up(&course, 1).await,
                Next::GiveUp { retry_after } => return self.give_up(&course, retry_after).await,
            };
            next = match went_on {
                Ok(next) => next,
                Err(ended) => return Ok(ended),
            };
        }
    }

    /// Makes an attempt at one candidate; an error ends the request.
    async fn try_it(&mut self, index: usize, kept: Option<Seat>, course: &mut Course) -> Result<Next, Ended> {
        let Some(offer) = self.x.live.offers.get(index).cloned() else {
            return Ok(course.pass(self.now()));
        };
        let _seat = match self.upstream_peer(&offer, kept, course).await? {
            Ok(seat) => seat,
            Err(next) => return Ok(next),
        };
        let rescue = self.progress.has_content();
        let stop = match self.attempt(&offer, course.asked()).await {
            Ok(ended) => return Err(ended),
            Err(stop) => stop,
        };
        let next = match stop {
            Stop::Fault(fault) if is_before_connection(&fault) => {
                Some(self.fail_to_connect(&offer, &fault, rescue, course))
            }
            stop => self.error_while_proxy(&offer, stop, rescue, course),
        };
        next.ok_or_else(|| self.left())
    }

    /// Acquires the permit of a candidate, as Pingora's `upstream_peer` returns a peer: the one that is `kept` for it,
    /// or another. Without a permit it returns the next step; an error ends the request.
    async fn upstream_peer(
        &mut self,
        offer: &Arc<OfferLive>,
        kept: Option<Seat>,
        course: &mut Course,
    ) -> Result<Result<Seat, Next>, Ended> {
        // A permit is valid at its own offer only.
        let kept = kept.filter(|seat| seat.offer().offer.index == offer.offer.index);
        Ok(match self.seat(offer, kept, course).await {
            Ok(Sat::Seat(seat)) => Ok(seat),
            Ok(Sat::Full) => Err(course.passed_full(self.now())),
            Ok(Sat::Not) => {
                self.missed = true;
                Err(course.pass(self.now()))
            }
            Ok(Sat::Rests(until)) => Err(course.rests(until, self.now())),
            Err(_) => return Err(self.left()),
        })
    }

    fn course(&self) -> Course {
        let routing = &self.x.live.settings.routing;
        let policy = Policy {
            attempts: routing.attempts,
            deadline: self.x.house.clock.at(self.deadline),
            patience: routing.patience,
            quick_retry: routing.quick_retry,
        };
        Course::new(self.chosen.entries.iter().copied(), policy, rand::random())
    }

    fn now(&self) -> Duration {
        self.x.house.clock.now()
    }

    /// Makes one attempt at an offer, from the bytes of the request to the last byte for the client.
    async fn attempt(&mut self, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
        let begun = Instant::now();
        #[cfg(feature = "inject")]
        self.x.house.inject.at(crate::net::fault_injection::At::Attempt);
        let mut done = self.ask_it(offer, number).await;
        done = self.asked_for_less(offer, number, done).await;
        done = self.asked_without(offer, number, done).await;
        if !matches!(done, Err(Stop::Left | Stop::Revoked)) {
            self.asked = None;
        }
        let took = begun.elapsed();
        self.x.record.waited += took;
        let outcome = match &done {
            Ok(_) => "ok",
            Err(Stop::Fault(fault)) if fault.kind == FaultKind::Descriptors => return done,
            Err(Stop::Fault(fault)) if self.ask.n > 1 && fault.answered.is_some() => "ok",
            Err(Stop::OneByOne) => FaultKind::Caller.name(),
            Err(Stop::Fault(fault)) => fault.kind.name(),
            Err(Stop::Own(_)) => "internal",
            Err(Stop::Left | Stop::Revoked) => "left",
            Err(Stop::Pass(_)) => return done,
        };
        let note = AttemptNote { provider: offer.offer.provider.id.clone(), outcome, took };
        note.tell(&self.x.id, &offer.offer.model.card.id, number);
        self.x.record.attempts.push(note);
        done
    }

    async fn ask_it(&mut self, offer: &Arc<OfferLive>, number: u32) -> Result<Ended, Stop> {
        self.weight.drop_all();
        if self.ask.stream {
            streaming::attempt(self, offer, number).await
        } else {
            buffered::attempt(self, offer, number).await
        }
    }

    /// Waits for a provider, then continues; an error ends the request.
    async fn pause(&mut self, span: Duration, course: &mut Course) -> Result<Next, Ended> {
        let began = clock::now();
        let never = std::pin::pin!(std::future::pending::<()>());
        let woken = self.watch.race(&mut self.x.caller, never, (began + span).min(self.deadline)).await;
        self.x.record.waited += clock::now().saturating_duration_since(began);
        match woken {
            wait::Woken::Alarm => Ok(course.resume(self.now())),
            _ => Err(self.left()),
        }
    }

    /// Ends the request of a client that left or whose key was revoked. It pays for the part that it received.
    fn left(&mut self) -> Ended {
        settle::left(self);
        settle::void(self, "left");
        Ended::Left
    }

    /// Ends a request that no provider answered, or whose broken stream no provider continued.
    async fn give_up(&mut self, course: &Course, retry_after: u32) -> Result<Ended, Refusal> {
        // The delivered part of a broken response is not charged either.
        settle::void(self, "failed");
        self.missed |= course.has_others();
        self.crowded = course.was_crowded();
        let unsaid = self.unsaid.take().filter(|_| !self.missed);
        let refusal = self.refusal.take().or(unsaid).unwrap_or_else(|| {
            let providers = &self.x.live.providers;
            let name = |index: usize| providers.get(index).map_or("", |provider| &*provider.provider.id);
            let refusal = match course.was_crowded() {
                true => Refusal::because(Code::Unavailable, FULL),
                false => self.chosen.unavailable(),
            };
            refusal.with("attempts", course.details(name)).retry_after(retry_after)
        });
        // The refusal of one choice is written by the request for all of them.
        if !self.progress.has_head() || self.choices != Choices::All {
            return Err(refusal);
        }
        Ok(streaming::fail(self, &refusal).await)
    }

    /// Returns the rescue by a provider: it continues the text if it can, else it starts over.
    fn rescue_with(&mut self, offer: &OfferLive) -> (Rescue, Option<String>) {
        if attempt::target(self, offer, penstock_contract::Dialect::Chat, self.at).continuation().is_none() {
            return (Rescue::StartOver, None);
        }
        match self.reply.as_mut().and_then(|reply| reply.delivered()) {
            Some(text) => (Rescue::Continue, Some(text)),
            None => (Rescue::StartOver, None),
        }
    }
}
