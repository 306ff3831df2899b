//! What a provider does not take though no client sent it: members of the gateway's own, and several choices at once.
//! The provider is asked once more without, and what is learned of it is remembered for its offer.

use super::Run;
use super::attempt::{self, Stop};
use super::fan::OneByOne;
use crate::config::settings::LogLevel;
use crate::exchange::Ended;
use crate::observe::log;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Adjust, Call, Code, EXTRAS, Extra, Extras, Fault, FaultKind, Noticed, Refusal};
use penstock_routing::{Course, Next};
use std::sync::Arc;

impl Run<'_, '_> {
    /// How a request to an offer differs from what is configured.
    pub(super) fn adjust(&self, offer: &OfferLive) -> Adjust {
        let named = offer.offer.abilities.reasoning_name.is_some();
        let mut adjust = offer.learned.adjust(|| self.now(), named);
        adjust.without = adjust.without.with(self.left_out);
        adjust.choices = self.choices;
        adjust
    }

    /// Asks again without the members of the gateway's own that the provider refused, as often as it names others, and
    /// remembers them once it has answered.
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
                // It names again what was not sent any more: that was not it.
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
            Err(Stop::Fault(fault)) if self.ask.n > 1 && !self.begun && may_be_for_number(&fault) => {
                Err(Stop::OneByOne)
            }
            done => done,
        }
    }

    /// Members that a provider refused and that leave with a request without them.
    fn refused(&self, offer: &OfferLive, done: &Result<Ended, Stop>) -> Option<Extras> {
        let Err(Stop::Fault(Fault { kind: FaultKind::Caller, named, .. })) = done else { return None };
        let known = self.adjust(offer).without;
        let fresh = named.beyond(known);
        if fresh.is_empty() {
            return None;
        }
        let before = self.calls(offer, Extras::NONE);
        let leaves = |extra: &Extra| {
            let continues = self.begun && matches!(extra, Extra::ContinueFinal | Extra::Prefix);
            continues || self.calls(offer, Extras::of(*extra)) != before
        };
        let all = EXTRAS.iter().map(|(extra, _)| *extra).chain([Extra::Reasoning]);
        let mine = all.filter(|extra| fresh.has(*extra)).filter(leaves);
        let mine = mine.fold(Extras::NONE, |mine, extra| mine.with(Extras::of(extra)));
        (!mine.is_empty()).then_some(mine)
    }

    /// What the offer is sent without these as well.
    fn calls(&self, offer: &OfferLive, without: Extras) -> Result<Vec<Call>, Refusal> {
        let unsaid = || Refusal::new(Code::Unsupported);
        let speech = attempt::speech(self, offer).map_err(|_| unsaid())?;
        let mut target = attempt::target(self, offer, speech.dialect(), self.at);
        target.adjust.without = target.adjust.without.with(without);
        speech.calls(self.ask, &target)
    }

    /// The offer has answered without these.
    fn remember_refused(&self, offer: &OfferLive) {
        let name = attempt::target(self, offer, penstock_contract::Dialect::Chat, self.at).reasoning();
        let news = offer.learned.refuses(self.left_out, name, self.now());
        let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
        for member in news.words() {
            let members = [("provider", provider), ("model", model), ("member", member)];
            log::event(LogLevel::Info, "member_refused", &members);
        }
    }

    /// Remembers what an answer showed of its offer.
    pub(super) fn noticed(&self, offer: &OfferLive, noticed: Noticed) {
        offer.learned.notice(noticed);
        if noticed.miscounted {
            self.gives_one_from_now(offer);
        }
    }

    fn gives_one_from_now(&self, offer: &OfferLive) {
        let many = Extras::of(Extra::Many);
        if offer.learned.refuses(many, None, self.now()).is_empty() {
            return;
        }
        let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
        log::event(
            LogLevel::Info,
            "member_refused",
            &[("provider", provider), ("model", model), ("member", "n")],
        );
    }

    /// Whether the choices of this request are asked of the offer one by one.
    pub(super) fn gives_one(&self, index: usize) -> bool {
        self.ask.n > 1
            && self.x.live.offers.get(index).is_some_and(|offer| offer.gives_one(self.ask, || self.now()))
    }

    /// Turns to asking one by one; a stream of several that has begun is not carried on that way.
    pub(super) fn split(&mut self, course: &mut Course) -> Next {
        if self.begun {
            return course.pass(self.now());
        }
        self.one_by_one = Some(OneByOne::all(None));
        Next::Refuse
    }

    /// An offer gave fewer choices than it was asked for: a stream keeps them, and a plain answer is asked for anew.
    pub(super) fn fewer(&mut self, offer: &OfferLive, whole: u32) {
        self.gives_one_from_now(offer);
        if self.begun {
            self.one_by_one = Some(OneByOne::from(whole));
        } else {
            self.drew(offer);
            self.one_by_one = Some(OneByOne::all(None));
        }
    }
}

/// Whether a refusal may be for the number of choices: it says so, or says nothing of what is wrong.
fn may_be_for_number(fault: &Fault) -> bool {
    let nameless = |refusal: &Refusal| refusal.code == Code::InvalidRequest && refusal.param.is_none();
    fault.kind == FaultKind::Caller
        && (fault.named.has(Extra::Many) || fault.refusal.as_deref().is_some_and(nameless))
}
