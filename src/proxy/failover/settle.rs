//! Settlement of a response: computes its usage, energy and price, and charges the client once, if a part of it was
//! delivered. The charge of a batch line is recorded later, together with its response.

use super::completed_calls::CompletedCalls;
use super::image_work::attempted_image_work;
use super::{ChoiceUsage, FailoverRun};
use crate::billing::Hold;
use crate::proxy::filters::ResponseUsage;
use crate::proxy::response::head::ResponseHead;
use crate::telemetry::throttle::ThrottledLog;
use crate::time::clock;
use crate::upstream::offer::OfferState;
use crate::upstream::pricing::{ChargeContext, charge_in_credits, to_ledger_footprint};
use http::{HeaderMap, HeaderName, HeaderValue};
use penstock_core::{
    ChoiceSelection, InferenceRequest, InferenceTask, MeasuredEnergy, MicroCredits, StreamTranslation,
    TokenUsage, UpstreamErrorKind, UsageBounds, UsageSource, WorkDone,
};
use penstock_footprint::AttemptEnergy;
use penstock_ledger::{RequestFootprint, Wallet};
use penstock_limits::ActualCost;
use penstock_pricing::PayingWallet;
use penstock_response_metadata::{BILLING_HEADER, IMPACT_HEADER};
use penstock_routing::{AttemptOutcome, LatencySample};
use rust_decimal::Decimal;
use std::sync::Arc;
use std::time::Duration;

/// Header that names the flavor.
pub const FLAVOR_HEADER: &str = "x-penstock-flavor";

/// Names of the trailer fields that carry `environment_impact` and `billing_cost`.
pub const SETTLEMENT_TRAILER_NAMES: &str = "x-environment-impact, x-billing-cost";

/// Charge of a request, as far as the end of its response needs it.
#[derive(Default)]
pub struct SettledCharge {
    /// Number of the charge's ledger operation; `None` before the charge, and for a batch line.
    pub ledger_ticket: Option<u64>,
    /// Members that state the charge of the delivered part, for the event that ends a failed stream.
    pub members: Vec<u8>,
    /// True if the delivered part of a failed stream is charged, because the provider is not at fault: the client, the
    /// output of the model or a timeout of the gateway ended it.
    pub charges_delivered: bool,
}

/// Energy of the failed attempts of one request.
#[derive(Default)]
pub struct FailedAttemptEnergy(Option<AttemptEnergy>);

impl FailedAttemptEnergy {
    /// Adds the energy of other failed attempts, such as those of a choice.
    pub fn merge(&mut self, other: Self) {
        match (&mut self.0, other.0) {
            (Some(sum), Some(more)) => sum.add_failed(&more),
            (none, more) => *none = none.take().or(more),
        }
    }

    /// Adds the energy of a choice that is not settled by itself: its request failed, or another offer than the first
    /// one answered it.
    pub fn add_uncharged_work(&mut self, part: &ChoiceUsage) {
        self.merge(Self(Some(part.offer.pricing.failed_attempt_energy(part.provider_usage, part.took))));
    }

    /// Adds the energy of a failed attempt: that of the prompt, and of the output that the provider sent. `usage` is
    /// estimated if it is `None`; `completed` are the calls of the attempt that were answered.
    pub fn add_failed_attempt(
        &mut self,
        offer: &OfferState,
        ask: &InferenceRequest,
        usage: Option<TokenUsage>,
        completed: CompletedCalls,
        took: Duration,
    ) {
        let attempt = match &ask.task {
            InferenceTask::GenerateImages(draw) => {
                let least = completed.image_work();
                let whole = attempted_image_work(draw, ask, offer, least);
                offer.pricing.incomplete_attempt_energy(whole, least, took)
            }
            InferenceTask::Transcribe(task) => {
                let audio_work = |seconds| WorkDone::Audio { seconds };
                let work = task.audio.seconds.map_or(WorkDone::Unknown, audio_work);
                offer.pricing.incomplete_attempt_energy(work, None, took)
            }
            InferenceTask::Passthrough(task) if task.max_work.usage().is_none() => {
                offer.pricing.incomplete_attempt_energy(task.max_work, None, took)
            }
            InferenceTask::Chat
            | InferenceTask::Complete(_)
            | InferenceTask::Passthrough(_)
            | InferenceTask::Embed(_)
            | InferenceTask::Rerank(_) => {
                let usage = usage.unwrap_or_else(|| ask.estimate_unreported_usage(0));
                let usage = ask.with_mean_prompt_length(completed.share_of(usage));
                offer.pricing.failed_attempt_energy(usage, took)
            }
        };
        match &mut self.0 {
            Some(sum) => sum.add_failed(&attempt),
            None => self.0 = Some(attempt),
        }
    }
}

/// Returns true if a provider that failed with this error may have processed the prompt.
pub const fn has_processed_prompt(kind: UpstreamErrorKind) -> bool {
    !matches!(
        kind,
        UpstreamErrorKind::Connect
            | UpstreamErrorKind::NoDescriptors
            | UpstreamErrorKind::Tls
            | UpstreamErrorKind::Credentials(_)
            | UpstreamErrorKind::Status(408 | 409 | 425 | 429)
    )
}

/// Settles a complete response, and records it for its offer. Returns the members that are injected into the response.
pub fn settle_success(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    metered: ResponseUsage,
    first_token: Option<Duration>,
    took: Duration,
) -> Vec<u8> {
    let own = metered.provider_work.usage();
    let sample = LatencySample {
        // Cached tokens are left out, because reading them takes almost no time.
        prompt_tokens: own.map_or(0, |usage| usage.input.saturating_sub(usage.cached)),
        output_tokens: own.map_or(0, |usage| usage.output),
        first_token,
        total: took,
    };
    offer.record_outcome(
        run.now(),
        run.admission,
        AttemptOutcome::Success,
        Some(run.exchange.principal.breaker_client),
        Some(sample),
    );
    run.record_capabilities(offer, metered.observation, own);
    if let Some(own) = own {
        let now = run.now();
        let outcome = run.candidates.record_session_answer(&run.exchange.config, offer, own, now);
        run.exchange.record.session = outcome;
    }
    run.exchange.caller.record_choice_finish_reason(metered.finish_reason);
    settle_usage(
        run,
        offer,
        metered.charged_work,
        metered.provider_work,
        metered.measured,
        took,
        Some(sample),
    )
}

/// Settles a response, or its delivered part. `done` is the charged work; `own` is the work of this offer, less than
/// `done` if other offers did a part. Returns the members that are injected into the response.
pub fn settle_usage(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    done: WorkDone,
    own: WorkDone,
    measured: Option<MeasuredEnergy>,
    took: Duration,
    sample: Option<LatencySample>,
) -> Vec<u8> {
    if let Some(sample) = sample {
        let now = run.exchange.app.clock.steady_now();
        run.candidates.requested_model().hourly_stats.lock().observe(now, sample);
    }
    match done.usage().map(|usage| usage.source) {
        Some(UsageSource::Overstated) => report_overstated(run, offer, "tokens"),
        Some(UsageSource::Understated) => report_understated(run, offer),
        Some(UsageSource::Provider | UsageSource::Gateway) | None => {}
    }
    // One choice of several is settled later, together with the other choices.
    if let (WorkDone::Tokens(charged_usage), WorkDone::Tokens(provider_usage), ChoiceSelection::One(_)) =
        (done, own, run.choices)
    {
        let part = ChoiceUsage { offer: offer.clone(), charged_usage, provider_usage, measured, took };
        if run.exchange.caller.store_choice_usage(part).is_ok() {
            return Vec::new();
        }
    }
    let (done, own) =
        (run.request.work_with_mean_prompt_length(done), run.request.work_with_mean_prompt_length(own));
    let terms = charge_context(run);
    let credible = measured.and_then(|measured| offer.pricing.energy_if_plausible(own, measured, took));
    if credible.is_none() && measured.is_some_and(|measured| measured.joules > Decimal::ZERO) {
        report_overstated(run, offer, "energy");
    }
    let settled = offer.pricing.price_answer(done, own, credible, took, run.failed_energy.0.as_ref(), terms);
    let money = charge_in_credits(&settled.charge, terms.eur_per_credit);
    let (input, output) = done.usage().map_or((0, 0), |usage| (usage.input, usage.output));
    let app = run.exchange.app;
    let charging = app.charge_lock.read();
    run.exchange.settle_limits(&ActualCost { input, output, money });
    if let Some(hold) = run.hold.take() {
        let charge = offer.pricing.settlement(&settled, &done, terms.batch);
        match run.exchange.caller.in_process_line() {
            None => run.settled.ledger_ticket = Some(hold.settle(charge)),
            Some(line) => line.set_hold_outcome(hold.into_settled_end(charge)),
        }
    }
    drop(charging);
    let record = &mut run.exchange.record;
    record.provider = Some(offer.offer.provider.id.clone());
    let model = offer.offer.model.card.id.as_str();
    if record.model.as_deref() != Some(model) {
        record.model = Some(model.into());
    }
    record.done = Some(done);
    record.footprint = Some(settled.footprint);
    record.charge = Some(settled.charge);
    record.cache = settled.cache;
    settled.members
}

/// Returns the terms on which a request is charged.
fn charge_context(run: &FailoverRun<'_, '_>) -> ChargeContext {
    let settings = &run.exchange.config.settings;
    ChargeContext {
        eur_per_credit: settings.billing.eur_per_credit,
        provenance: settings.impact.provenance,
        amounts: settings.compatibility.amount_format(),
        batch: run.candidates.batch,
        wallet: match run.hold.as_ref().map(Hold::wallet) {
            Some(Wallet::Energy) => PayingWallet::Energy,
            Some(Wallet::Credits) | None => PayingWallet::Credits,
        },
        at: run.received_at,
    }
}

/// Counts and logs that an offer reported an impossibly high usage; logs at most once a second for the process.
fn report_overstated(run: &FailoverRun<'_, '_>, offer: &OfferState, figure: &'static str) {
    static LINES: ThrottledLog = ThrottledLog::new();
    let (provider, model) = (&*offer.offer.provider.id, offer.offer.model.card.id.as_str());
    run.exchange.app.metrics.count_overstated_usage(provider, model, figure);
    LINES.log(clock::cached_now(), |times| {
        tracing::warn!(name: "usage_overstated", provider, model, figure, times);
    });
}

/// Counts and logs that an offer reported fewer tokens than the text has; logs at most once a second for the process.
fn report_understated(run: &FailoverRun<'_, '_>, offer: &OfferState) {
    static LINES: ThrottledLog = ThrottledLog::new();
    let (provider, model) = (&*offer.offer.provider.id, offer.offer.model.card.id.as_str());
    run.exchange.app.metrics.count_understated_usage(provider, model);
    LINES.log(clock::cached_now(), |times| {
        tracing::warn!(name: "usage_understated", provider, model, times);
    });
}

/// Settles the part of a stream that the client received before it disconnected, or before another end that is not the
/// provider's fault. Stores the members of the charge for the event that ends the answer.
pub fn settle_interrupted_stream(run: &mut FailoverRun<'_, '_>) {
    let (Some(offer), Some(mut reply)) = (run.current_offer.clone(), run.translation.take()) else { return };
    if run.progress.has_delivered_content() {
        run.settled.members = settle_delivered_part(run, &offer, reply.as_mut());
    }
    run.translation = Some(reply);
}

/// Settles the delivered part of an answer. Returns the members of the charge, which are empty if nothing is charged.
fn settle_delivered_part(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    reply: &mut dyn StreamTranslation,
) -> Vec<u8> {
    if let Some(work) = reply.non_token_work() {
        let took = run.attempt_started.map_or(Duration::ZERO, |asked| asked.elapsed());
        return settle_usage(run, offer, work, work, None, took, None);
    }
    let part = reply.delivered_usage();
    // Reasoning that the answer does not show, and a start event without content, are not charged.
    if part.is_empty {
        return Vec::new();
    }
    let count = part.usage;
    // The usage that the provider has reported so far may be lower or higher than that of the delivered part.
    let delivered = UsageBounds::max_delivered_tokens(0, part.bytes, 0).max(count.output);
    let usage = match reply.usage() {
        Some(reported) if (count.output..=delivered).contains(&reported.output) => reported,
        Some(reported) => TokenUsage { output: count.output, source: UsageSource::Gateway, ..reported },
        None => count,
    };
    let (own, measured, took) = match run.attempt_started {
        Some(asked) => {
            (reply.attempt_usage(), reply.measured_energy().or(run.header_energy), asked.elapsed())
        }
        // The stream broke, so its energy is counted with the failed attempts.
        None => (TokenUsage::default(), None, Duration::ZERO),
    };
    settle_usage(run, offer, WorkDone::Tokens(usage), WorkDone::Tokens(own), measured, took, None)
}

/// Counts the delivered part of a broken stream in the limits; it is not charged. A part that is charged has been
/// counted with its charge.
pub fn count_delivered_in_limits(run: &mut FailoverRun<'_, '_>) {
    if let (true, true, Some(reply)) =
        (run.progress.has_content(), run.settled.members.is_empty(), &run.translation)
    {
        let count = reply.delivered_usage().usage;
        run.exchange.settle_limits(&ActualCost {
            input: count.input,
            output: count.output,
            money: MicroCredits(0),
        });
    }
}

/// Ends the reservation of a failed request. The delivered part of a response is charged unless its provider broke it.
pub fn end_failed_request(run: &mut FailoverRun<'_, '_>) {
    if run.settled.charges_delivered {
        settle_interrupted_stream(run);
    }
    void_reservation(run, "failed");
}

/// Voids the reservation of a request whose client disconnected, or of a batch line whose batch was cancelled or
/// interrupted.
pub fn void_disconnected(run: &mut FailoverRun<'_, '_>) {
    void_reservation(run, close_reason(run));
}

/// Returns the reason why a request ended early, as the ledger names it: its client left, or its batch cancelled or
/// interrupted it.
pub fn close_reason(run: &FailoverRun<'_, '_>) -> &'static str {
    run.exchange.caller.in_process_line().map_or("left", |line| line.close_reason())
}

/// Voids the reservation, if the request has not been settled: nothing is charged.
pub fn void_reservation(run: &mut FailoverRun<'_, '_>, why: &'static str) {
    if let Some(hold) = run.hold.take() {
        let footprint = run.failed_energy.0.as_ref().map(AttemptEnergy::footprint);
        // The complete footprint is that of the failed attempts. `failed_kwh` is 0, so that their energy does not
        // count twice.
        let footprint = RequestFootprint {
            failed_kwh: Decimal::ZERO,
            ..footprint.as_ref().map(to_ledger_footprint).unwrap_or_default()
        };
        match run.exchange.caller.in_process_line() {
            None => hold.void(why, footprint),
            Some(line) => line.set_hold_outcome(hold.into_voided_end(why, footprint)),
        }
    }
}

/// Waits until the charge is on the disk, if the configuration says so.
pub async fn wait_for_ledger(run: &mut FailoverRun<'_, '_>) {
    if let Some(ticket) =
        run.settled.ledger_ticket.filter(|_| run.exchange.config.settings.ledger.answers_wait_for_disk)
    {
        run.exchange.app.ledger.wait_written_or_journaled(ticket).await;
    }
}

/// Returns the head of an inference response, with its provider, flavor and number of attempts.
pub fn inference_response_head(run: &FailoverRun<'_, '_>, offer: &OfferState, number: u32) -> ResponseHead {
    run.exchange
        .new_response_head(200)
        .with_field("x-penstock-provider", &*offer.offer.provider.id)
        .with_field(FLAVOR_HEADER, run.exchange.record.flavor.unwrap_or_default())
        .with_numeric_field("x-penstock-attempts", number.into())
}

/// Adds `environment_impact` and `billing_cost` as headers, for responses whose body is not JSON.
pub fn add_settlement_headers(head: ResponseHead, members: &[u8]) -> ResponseHead {
    let object = [b"{", members, b"}"].concat();
    header_objects(&object).into_iter().fold(head, |head, (header, value)| head.with_field(header, value))
}

/// Returns `environment_impact` and `billing_cost` as trailer fields.
pub fn settlement_trailers(members: &[u8]) -> HeaderMap {
    let object = [b"{", members, b"}"].concat();
    let field =
        |(header, value)| Some((HeaderName::from_static(header), HeaderValue::from_bytes(value).ok()?));
    header_objects(&object).into_iter().filter_map(field).collect()
}

/// Returns the header names of `environment_impact` and `billing_cost`, each with the text of its object, which is
/// ASCII.
fn header_objects(object: &[u8]) -> Vec<(&'static str, &[u8])> {
    let (mut found, mut headers) = (penstock_json_scan::json::members(object), Vec::with_capacity(2));
    while let Some((name, value)) = found.next_raw() {
        match name {
            b"environment_impact" => headers.push((IMPACT_HEADER, value)),
            b"billing_cost" => headers.push((BILLING_HEADER, value)),
            _ => {}
        }
    }
    headers
}
