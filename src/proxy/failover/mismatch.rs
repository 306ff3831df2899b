//! Parts of a request that a provider refuses though no client sent them: members and headers of the gateway's own,
//! several choices at once, and too high a cap on tokens. The provider is asked again without them, and the refusal is
//! remembered for its offer.

use super::Run;
use super::attempt::{self, Stop};
use super::fan::OneByOne;
use crate::config::settings::LogLevel;
use crate::proxy::context_window;
use crate::proxy::exchange::Ended;
use crate::telemetry::log;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Adjust, Call, Code, EXTRAS, Extra, Extras, Fault, FaultKind, Noticed, Refusal};
use penstock_routing::{Course, Next};
use std::sync::Arc;

impl Run<'_, '_> {
    /// Returns the differences of a request from the configuration of its offer.
    pub(super) fn adjust(&self, offer: &OfferLive) -> Adjust {
        let named = offer.offer.abilities.reasoning_name.is_some();
        let mut adjust = offer.learned.adjust(|| self.now(), named);
        adjust.without = adjust.without.with(self.left_out);
        adjust.choices = self.choices;
        adjust
    }

    /// The cap on generated tokens to send instead of the client's own or the dialect's, if that does not fit.
    pub(super) fn max_tokens(&self, offer: &OfferLive) -> Option<u64> {
        let fits = self.chosen.max_tokens(offer, self.ask);
        let asked = fits.or_else(|| context_window::wanted(self.ask, offer))?;
        offer.learned.max_output(|| self.now()).filter(|most| *most < asked).or(fits)
    }

    /// Retries with fewer tokens if the provider refused their number. If the provider named its maximum for any input,
    /// that is remembered after a response.
    pub(super) async fn asked_for_less(
        &mut self,
        offer: &Arc<OfferLive>,
        number: u32,
        done: Result<Ended, Stop>,
    ) -> Result<Ended, Stop> {
        let (room, most) = match &done {
            Err(Stop::Fault(fault)) if !self.progress.has_content() && fault.is_for_length() => {
                (fault.room, fault.max_output)
            }
            _ => return done,
        };
        if !self.chosen.lower(offer, self.ask, room.or(most)) {
            return done;
        }
        let done = Box::pin(self.ask_it(offer, number)).await;
        if let (Ok(_), None, Some(most)) = (&done, room, most)
            && offer.learned.limits_output(most, self.now())
        {
            self.tell_learned(offer, &format!("max_tokens above {most}"));
        }
        done
    }

    fn tell_learned(&self, offer: &OfferLive, member: &str) {
        let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
        let members = [("provider", provider), ("model", model), ("member", member)];
        log::event(LogLevel::Info, "member_refused", &members);
    }

    /// Retries without the own members that the provider refused, as often as it names others, and remembers them after
    /// a response.
    pub(super) async fn asked_without(
        &mut self,
        offer: &Arc<OfferLive>,
        number: u32,
        mut done: Result<Ended, Stop>,
    ) -> Result<Ended, Stop> {
        let mut first = None;
        while let Some(refused) = self.refused(offer, &done) {
            self.left_out = self.left_out.with(refused);
            let again = Box::pin(self.ask_it(offer, number)).await;
            first.get_or_insert(std::mem::replace(&mut done, again));
        }
        if let Some(first) = first {
            match &done {
                Ok(_) => self.remember_refused(offer),
                // The provider names a member that was not sent again: the cause is another.
                Err(Stop::Fault(Fault { kind: FaultKind::Caller, named, .. }))
                    if !named.both(self.left_out).is_empty() =>
                {
                    done = Err(first.err().unwrap_or(Stop::Left));
                }
                Err(_) => {}
            }
            self.left_out = Extras::NONE;
        }
        match done {
            Err(Stop::Fault(fault))
                if self.ask.n > 1 && !self.progress.has_content() && may_be_for_number(&fault) =>
            {
                Err(Stop::OneByOne)
            }
            done => done,
        }
    }

    /// Returns the members that a provider refused and that the request can be sent without.
    fn refused(&self, offer: &OfferLive, done: &Result<Ended, Stop>) -> Option<Extras> {
        let Err(Stop::Fault(Fault { kind: FaultKind::Caller, named, .. })) = done else { return None };
        let known = self.adjust(offer).without;
        let fresh = named.beyond(known);
        if fresh.is_empty() {
            return None;
        }
        let before = self.calls(offer, Extras::NONE);
        let leaves = |extra: &Extra| {
            let continues =
                self.progress.has_content() && matches!(extra, Extra::ContinueFinal | Extra::Prefix);
            let is_header = || self.sends_header(offer, *extra);
            continues || is_header() || self.calls(offer, Extras::of(*extra)) != before
        };
        let all = EXTRAS.iter().map(|(extra, _)| *extra).chain([Extra::Reasoning]);
        let mine = all.filter(|extra| fresh.has(*extra)).filter(leaves);
        let mine = mine.fold(Extras::NONE, |mine, extra| mine.with(Extras::of(extra)));
        (!mine.is_empty()).then_some(mine)
    }

    /// Returns true for a header that the gateway adds itself; a configured one belongs to the operator.
    fn sends_header(&self, offer: &OfferLive, extra: Extra) -> bool {
        if extra == Extra::TraceContext {
            return self.x.record.trace.as_deref().is_some_and(|trace| trace.headers().next().is_some());
        }
        let Ok(Some(head)) = attempt::speech(self, offer).map(|speech| speech.head(offer)) else {
            return false;
        };
        let is_configured =
            |name: &str| offer.offer.provider.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let headers = &head.parsed.headers;
        extra.headers().iter().any(|name| headers.contains_key(*name) && !is_configured(name))
    }

    /// Returns the calls to the offer without these members too.
    fn calls(&self, offer: &OfferLive, without: Extras) -> Result<Vec<Call>, Refusal> {
        let unsaid = || Refusal::new(Code::Unsupported);
        let speech = attempt::speech(self, offer).map_err(|_| unsaid())?;
        let mut target = attempt::target(self, offer, speech.dialect(), self.at);
        target.adjust.without = target.adjust.without.with(without);
        speech.calls(self.ask, &target)
    }

    /// Remembers the members without which the offer has answered.
    fn remember_refused(&self, offer: &OfferLive) {
        let name = attempt::target(self, offer, penstock_contract::Dialect::Chat, self.at).reasoning();
        let news = offer.learned.refuses(self.left_out, name, self.now());
        news.words().for_each(|member| self.tell_learned(offer, member));
    }

    /// Remembers the abilities that a response showed of its offer.
    pub(super) fn noticed(&self, offer: &OfferLive, noticed: Noticed) {
        offer.learned.notice(noticed);
        if noticed.miscounted {
            self.gives_one_from_now(offer);
        }
    }

    fn gives_one_from_now(&self, offer: &OfferLive) {
        let many = Extras::of(Extra::Many);
        if !offer.learned.refuses(many, None, self.now()).is_empty() {
            self.tell_learned(offer, "n");
        }
    }

    /// Returns true if the choices of this request are requested from the offer one by one.
    pub(super) fn gives_one(&self, index: usize) -> bool {
        self.ask.n > 1
            && self.x.live.offers.get(index).is_some_and(|offer| offer.gives_one(self.ask, || self.now()))
    }

    /// Switches to requests of one choice each; a stream of several that has begun is not continued so.
    pub(super) fn split(&mut self, course: &mut Course) -> Next {
        if self.progress.has_content() {
            return course.pass(self.now());
        }
        self.one_by_one = Some(OneByOne::all(None));
        Next::Refuse
    }

    /// Handles an offer that gave fewer choices than requested: a stream keeps them, and a buffered response is
    /// requested again.
    pub(super) fn fewer(&mut self, offer: &OfferLive, whole: u32) {
        self.gives_one_from_now(offer);
        if self.progress.has_content() {
            self.one_by_one = Some(OneByOne::from(whole));
        } else {
            self.drew(offer);
            self.one_by_one = Some(OneByOne::all(None));
        }
    }
}

/// Returns true for a refusal that may be due to the number of choices: it names them, or names no cause.
fn may_be_for_number(fault: &Fault) -> bool {
    let nameless = |refusal: &Refusal| refusal.code == Code::InvalidRequest && refusal.param.is_none();
    fault.kind == FaultKind::Caller
        && (fault.named.has(Extra::Many) || fault.refusal.as_deref().is_some_and(nameless))
}
