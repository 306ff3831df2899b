//! Settlement of a response: its usage, energy and price. Nothing is charged if nothing was delivered, and a client pays
//! for one response once. The charge of a batch line is entered later, together with its response.

use super::{Part, Run};
use crate::billing::Hold;
use crate::proxy::filters::Metered;
use crate::proxy::response::head::Head;
use crate::telemetry::log;
use crate::telemetry::throttle::Seldom;
use crate::time::clock;
use crate::upstream::offer::OfferLive;
use crate::upstream::pricing::{Terms, drawn, worth};
use penstock_annotate::{BILLING_HEADER, IMPACT_HEADER};
use penstock_contract::{
    Ask, Choices, Done, Draw, FaultKind, Measured, MicroCredits, Reply, Size, Task, Usage, UsageBounds,
    UsageSource,
};
use penstock_footprint::Attempt;
use penstock_ledger::Wallet;
use penstock_limits::Used;
use penstock_media::picture::steps_name;
use penstock_pricing::PaymentSource;
use penstock_routing::{Outcome, Sample};
use rust_decimal::Decimal;
use std::sync::Arc;
use std::time::Duration;

/// The header that names the flavor.
pub const FLAVOR: &str = "x-penstock-flavor";

/// Energy of the failed attempts of one request.
#[derive(Default)]
pub struct Spent(Option<Attempt>);

impl Spent {
    /// Adds the energy of the failed attempts of a choice.
    pub fn merge(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(sum), Some(more)) => sum.add(&more),
            (none, more) => *none = none.take().or(more),
        }
    }

    /// Adds the energy of work that is not charged separately.
    pub fn add_part(&mut self, part: &Part) {
        self.merge(Self(Some(part.offer.bill.failed(part.own, part.took))));
    }

    /// Adds the energy of a failed attempt: of the prompt, and of the output that the provider sent.
    pub fn failed(&mut self, offer: &OfferLive, ask: &Ask, reply: Option<&dyn Reply>, took: Duration) {
        let attempt = match &ask.task {
            Task::Draw(draw) => offer.bill.failed_within(images(draw.n, draw, ask, offer), took),
            Task::Transcribe(task) => {
                let heard = |seconds| Done::Audio { seconds };
                offer.bill.failed_within(task.sound.seconds.map_or(Done::Unknown, heard), took)
            }
            Task::Talk | Task::Embed(_) | Task::Rerank(_) => {
                let usage = reply.map_or_else(|| ask.counted(0), Reply::worked);
                offer.bill.failed(usage, took)
            }
        };
        match &mut self.0 {
            Some(sum) => sum.add(&attempt),
            None => self.0 = Some(attempt),
        }
    }
}

/// Returns true if a provider with this fault has worked on the prompt.
pub const fn worked(kind: FaultKind) -> bool {
    !matches!(
        kind,
        FaultKind::Connect
            | FaultKind::Descriptors
            | FaultKind::Tls
            | FaultKind::Credentials(_)
            | FaultKind::Status(408 | 409 | 425 | 429)
    )
}

/// Returns the work of `count` images: in the requested size or the model's own, with the steps of the request where
/// the offer takes them, or those of the offer.
pub fn images(count: u32, draw: &Draw, ask: &Ask, offer: &OfferLive) -> Done {
    let size = draw.size.or_else(|| offer.offer.model.image_sizes.first().copied());
    let takes = |shape| steps_name(shape, &offer.offer.abilities).is_some();
    let steps = ask.steps().filter(|_| offer.offer.shape.is_some_and(takes)).or(offer.offer.image_steps);
    Done::Images { count, steps, pixels: size.map(Size::pixels) }
}

/// Settles a response that has ended well, and records it for its offer. Returns the members that go into it.
pub fn succeeded(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    metered: Metered,
    first_token: Option<Duration>,
    took: Duration,
) -> Vec<u8> {
    let own = metered.own.usage();
    let sample = Sample {
        prompt_tokens: own.map_or(0, |usage| usage.input),
        output_tokens: own.map_or(0, |usage| usage.output),
        first_token,
        total: took,
    };
    offer.learn(run.now(), Outcome::Good, Some(run.x.grant.client), Some(sample));
    run.noticed(offer, metered.noticed);
    run.x.caller.note_finish(metered.finish);
    served(run, offer, metered.done, metered.own, metered.measured, took, Some(sample))
}

/// Settles a complete response: `done` is the work that is charged, `own` the work of this offer, where others did the
/// rest. Returns the members that go into it.
pub fn served(
    run: &mut Run<'_, '_>,
    offer: &Arc<OfferLive>,
    done: Done,
    own: Done,
    measured: Option<Measured>,
    took: Duration,
    sample: Option<Sample>,
) -> Vec<u8> {
    if let Some(sample) = sample {
        run.chosen.model().hour.lock().observe(run.x.house.clock.now(), sample);
    }
    // One choice of several is settled together with the others.
    if let (Done::Tokens(paid), Done::Tokens(worked), Choices::One(_)) = (done, own, run.choices) {
        let part = Part { offer: offer.clone(), done: paid, own: worked, measured, took };
        if run.x.caller.keep_part(part).is_ok() {
            return Vec::new();
        }
    }
    let settings = &run.x.live.settings;
    let terms = Terms {
        eur_per_credit: settings.billing.eur_per_credit,
        provenance: settings.impact.provenance,
        amounts: settings.compatibility.amount_format(),
        batch: run.chosen.batch,
        wallet: match run.hold.as_ref().map(Hold::wallet) {
            Some(Wallet::Energy) => PaymentSource::Energy,
            Some(Wallet::Credits) | None => PaymentSource::Credits,
        },
        at: run.at,
    };
    if done.usage().is_some_and(|usage| usage.source == UsageSource::Overstated) {
        overstated(run, offer, "tokens");
    }
    let credible = measured.and_then(|measured| offer.bill.credible(own, measured, took));
    if credible.is_none() && measured.is_some_and(|measured| measured.joules > Decimal::ZERO) {
        overstated(run, offer, "energy");
    }
    let settled = offer.bill.of(done, own, credible, took, run.spent.0.as_ref(), terms);
    let money = worth(&settled.charge, terms.eur_per_credit);
    let (input, output) = done.usage().map_or((0, 0), |usage| (usage.input, usage.output));
    let house = run.x.house;
    let charging = house.charging.read();
    run.x.used(&Used { input, output, money });
    if let Some(hold) = run.hold.take() {
        let charge = offer.bill.settlement(&settled, &done, terms.batch);
        match run.x.caller.line() {
            None => run.ticket = Some(hold.settle(charge)),
            Some(line) => line.set_end(hold.settling(charge)),
        }
    }
    drop(charging);
    let record = &mut run.x.record;
    record.provider = Some(offer.offer.provider.id.clone());
    record.model = Some(offer.offer.model.card.id.as_str().into());
    record.done = Some(done);
    record.footprint = Some(settled.footprint);
    record.charge = Some(settled.charge);
    settled.members
}

/// Logs that an offer reported more than is possible, at most once a second for the process.
fn overstated(run: &Run<'_, '_>, offer: &OfferLive, figure: &'static str) {
    static LINES: Seldom = Seldom::new();
    let (provider, model) = (&*offer.offer.provider.id, offer.offer.model.card.id.as_str());
    run.x.house.metrics.overstated(provider, model, figure);
    LINES.tell(clock::now(), |times| {
        let members = [("provider", provider), ("model", model), ("figure", figure), ("times", times)];
        log::event(log::warn(), "usage_overstated", &members);
    });
}

/// Settles the part that a client received before it left, or before output that cannot be translated.
pub fn left(run: &mut Run<'_, '_>) {
    let (Some(offer), Some(reply)) = (run.current.clone(), run.reply.take()) else { return };
    if !run.progress.has_content() {
        return;
    }
    let count = reply.counted();
    // The provider's usage so far may be less or more than the delivered part.
    let delivered = UsageBounds::delivered(0, reply.output_bytes(), 0).max(count.output);
    let usage = match reply.usage() {
        Some(said) if (count.output..=delivered).contains(&said.output) => said,
        Some(said) => Usage { output: count.output, source: UsageSource::Gateway, ..said },
        None => count,
    };
    let (own, measured, took) = match run.asked {
        Some(asked) => (reply.worked(), reply.measured(), asked.elapsed()),
        // The stream broke: its energy is counted with the failed attempts.
        None => (Usage::default(), None, Duration::ZERO),
    };
    served(run, &offer, Done::Tokens(usage), Done::Tokens(own), measured, took, None);
}

/// Counts the delivered part of a broken stream in the limits; it is not charged.
pub fn broken(run: &mut Run<'_, '_>) {
    if let (true, Some(reply)) = (run.progress.has_content(), &run.reply) {
        let count = reply.counted();
        run.x.used(&Used { input: count.input, output: count.output, money: MicroCredits(0) });
    }
}

/// Voids the reservation, if the request has not been settled: nothing is charged.
pub fn void(run: &mut Run<'_, '_>, why: &'static str) {
    if let Some(hold) = run.hold.take() {
        let footprint = run.spent.0.as_ref().map(Attempt::footprint);
        let drawn = footprint.as_ref().map(drawn).unwrap_or_default();
        match run.x.caller.line() {
            None => hold.void(why, drawn),
            Some(line) => line.set_end(hold.voiding(why, drawn)),
        }
    }
}

/// Waits until the charge is on the disk, if the configuration says so.
pub async fn written(run: &mut Run<'_, '_>) {
    if let Some(ticket) = run.ticket.filter(|_| run.x.live.settings.ledger.answers_wait_for_disk) {
        run.x.house.ledger.written(ticket).await;
    }
}

/// Returns the head of an inference response: its provider, flavor and number of attempts.
pub fn head(run: &Run<'_, '_>, offer: &OfferLive, number: u32) -> Head {
    run.x
        .head(200)
        .with("x-penstock-provider", &*offer.offer.provider.id)
        .with(FLAVOR, run.x.record.flavor.unwrap_or_default())
        .number("x-penstock-attempts", number.into())
}

/// Adds both objects as headers, for responses that are not JSON. Their text is ASCII.
pub fn in_headers(head: Head, members: &[u8]) -> Head {
    let object = [b"{", members, b"}"].concat();
    let mut found = penstock_wire::json::members(&object);
    let mut head = head;
    while let Some((name, value)) = found.next_pair() {
        let header = match name {
            b"environment_impact" => IMPACT_HEADER,
            b"billing_cost" => BILLING_HEADER,
            _ => continue,
        };
        head = head.with(header, value);
    }
    head
}
