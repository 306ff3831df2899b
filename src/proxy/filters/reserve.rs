//! Reservation of credits: the maximum price of a request is reserved before the connection to a provider.
//!
//! The number of input tokens is bounded by the bytes of the input, and `max_tokens` bounds the output. If accounts are
//! prepaid (`billing.credit`), a request without `max_tokens` gets the largest one that the balance covers, at least
//! `billing.reserve_output_tokens`. No answer then costs more than was reserved. Otherwise, the output of a request
//! without `max_tokens` is an estimate (`billing.reserve_output_tokens`); if the response is longer, the excess is
//! charged too.

use super::request::{InferenceContext, RequestFilter};
use crate::billing::{Hold, ReserveAmounts};
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover::{CandidateSet, max_image_work};
use crate::upstream::offer::OfferState;
use penstock_core::{ApiError, InferenceRequest, InferenceTask, TokenUsage, WorkDone, WorkUnit};
use penstock_ledger::WalletBalance;
use std::ops::ControlFlow;

/// Filter that reserves the price of the most expensive candidate.
pub struct ReserveCredits;

impl RequestFilter for ReserveCredits {
    const NAME: &'static str = "reserve";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        if let (Some(ask), Some(candidates)) = (&request.ask, &mut request.candidates) {
            request.hold =
                Some(reserve_credits(request.exchange, ask, candidates, request.selected_at).await?);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the amounts that a request reserves: the price at the most expensive candidate.
pub fn highest_reservation(
    x: &Exchange<'_>,
    ask: &InferenceRequest,
    chosen: &CandidateSet,
    at: u64,
) -> ReserveAmounts {
    reservation_of(x, ask, chosen, at, x.config.settings.billing.reserve_output_tokens)
}

/// Returns the amounts that a request reserves, if its output counts as `usual` tokens when the client states no limit.
fn reservation_of(
    x: &Exchange<'_>,
    ask: &InferenceRequest,
    chosen: &CandidateSet,
    at: u64,
    usual: u64,
) -> ReserveAmounts {
    let billing = &x.config.settings.billing;
    let mut most: Option<ReserveAmounts> = None;
    for offer in chosen.entries.iter().filter_map(|entry| x.config.offers.get(entry.offer)) {
        let done = max_work(offer, ask, max_output(offer, ask, usual));
        let need = offer.pricing.reserve_amounts(&done, chosen.batch, at, billing.eur_per_credit);
        most = Some(match most {
            None => need,
            Some(most) => ReserveAmounts {
                credits: most.credits.max(need.credits),
                // An amount of energy is reserved only if each of the candidates may be paid from the energy wallet.
                energy: most.energy.zip(need.energy).map(|(one, other)| one.max(other)),
                eur: most.eur.max(need.eur),
            },
        });
    }
    most.unwrap_or_default()
}

/// Reserves the price of the most expensive candidate. For a prepaid account, this limits the output of a request that
/// states no limit.
///
/// # Errors
/// Returns a refusal if the account has too few credits, or if too many operations of the ledger are not on the disk
/// yet.
async fn reserve_credits(
    x: &Exchange<'_>,
    ask: &InferenceRequest,
    chosen: &mut CandidateSet,
    at: u64,
) -> Result<Hold, ApiError> {
    let usual = x.config.settings.billing.reserve_output_tokens;
    let (principal, id) = (&x.principal, x.id.as_str());
    let (ledger, account, key) = (&x.app.ledger, &principal.account.id, &principal.public_id);
    if !x.config.settings.billing.prepaid {
        return ledger.reserve(account, key, id, highest_reservation(x, ask, chosen, at), false);
    }
    if ask.max_tokens.is_none() && ask.kind.spec().unit == WorkUnit::GeneratedTokens {
        chosen.output_cap = Some(usual);
        let affordable = affordable_output(x, ask, chosen, at);
        // Another request may have reserved the balance meanwhile.
        if affordable > usual
            && let Ok(hold) =
                ledger.reserve(account, key, id, reservation_of(x, ask, chosen, at, affordable), true)
        {
            chosen.output_cap = Some(affordable);
            return Ok(hold);
        }
    }
    ledger.reserve_prepaid(account, key, id, highest_reservation(x, ask, chosen, at)).await
}

/// Returns the largest number of output tokens that the balance covers, at most the largest output of the candidates.
fn affordable_output(x: &Exchange<'_>, ask: &InferenceRequest, chosen: &CandidateSet, at: u64) -> u64 {
    let balance = x.app.ledger.balance(&x.principal.account.id);
    let covers = |output: u64| {
        let need = reservation_of(x, ask, chosen, at, output);
        let is_available =
            |wallet: WalletBalance, amount: i64| wallet.amount.saturating_sub(wallet.held) >= amount;
        is_available(balance.credits, need.credits)
            || need.energy.is_some_and(|energy| is_available(balance.energy, energy))
    };
    let offers = chosen.entries.iter().filter_map(|entry| x.config.offers.get(entry.offer));
    let most = offers.map(|offer| offer.max_output_tokens()).max().unwrap_or_default();
    if covers(most) {
        return most;
    }
    let (mut covered, mut excess) = (0, most);
    while excess - covered > 1 {
        let middle = covered + (excess - covered) / 2;
        if covers(middle) { covered = middle } else { excess = middle }
    }
    covered
}

/// Returns the maximum number of output tokens of all choices of an offer: the client's limit or else the `usual`
/// number, at most the offer's maximum.
fn max_output(offer: &OfferState, ask: &InferenceRequest, usual: u64) -> u64 {
    ask.max_tokens.unwrap_or(usual).min(offer.max_output_tokens()).saturating_mul(ask.generation_count())
}

/// Returns the maximum work of an offer for a request whose choices have at most `output` tokens together. Reservations
/// of credits and of budgets use it alike for the input; their `output` may differ.
pub(super) fn max_work(offer: &OfferState, ask: &InferenceRequest, output: u64) -> WorkDone {
    let window = offer.offer.context_length;
    let input = ask.max_input_tokens_for_window(window, offer.offer.capabilities.image_token_bound());
    match ask.kind.spec().unit {
        WorkUnit::GeneratedTokens => {
            let prompts = ask.prompt_read_count();
            // Each choice that is requested separately has the complete prompt.
            let mean_prompt_length = (prompts > 1).then_some(input);
            let input = input.saturating_mul(prompts);
            let usage = TokenUsage { input, output, mean_prompt_length, ..TokenUsage::default() };
            WorkDone::Tokens(ask.with_mean_prompt_length(usage))
        }
        WorkUnit::InputTokens => WorkDone::Tokens(TokenUsage { input, ..TokenUsage::default() }),
        WorkUnit::Images | WorkUnit::AudioSeconds => max_media_work(offer, ask),
    }
}

/// Returns the maximum work of an image or audio request: the number of images, or the seconds of the audio file. If
/// its duration was not measured, it is the longest duration that its size allows.
fn max_media_work(offer: &OfferState, ask: &InferenceRequest) -> WorkDone {
    match &ask.task {
        InferenceTask::GenerateImages(draw) => max_image_work(draw, ask, offer),
        InferenceTask::Transcribe(task) => WorkDone::Audio { seconds: task.audio.max_seconds() },
        InferenceTask::Passthrough(task) => task.max_work,
        InferenceTask::Chat
        | InferenceTask::Complete(_)
        | InferenceTask::Embed(_)
        | InferenceTask::Rerank(_) => WorkDone::Unknown,
    }
}
