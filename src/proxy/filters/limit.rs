//! Limits of tokens and money: reserves the maximum cost of a request before anything is sent.

use super::request::{InferenceContext, RequestFilter};
use super::reserve;
use crate::limits::rate_limit::TypicalKeyUsage;
use crate::proxy::exchange::{Exchange, WriteOutcome};
use crate::proxy::failover::CandidateSet;
use crate::upstream::offer::OfferState;
use penstock_core::{ApiError, InferenceRequest, MicroCredits, WorkUnit};
use penstock_limits::CostEstimate;
use std::ops::ControlFlow;

/// Number of tokens that an image takes of a limit per minute, until the provider reports its usage.
const IMAGE_TOKENS: u64 = 1_024;

/// Filter that reserves the limits of the key and its account, in exchange for the provisional permit.
pub struct ReserveLimits;

impl RequestFilter for ReserveLimits {
    const NAME: &'static str = "limit";

    async fn check(request: &mut InferenceContext<'_, '_>) -> Result<ControlFlow<WriteOutcome>, ApiError> {
        let taken = (request.provisional_permit.take(), &request.candidates, &request.ask);
        if let (Some((entry, habits)), Some(candidates), Some(ask)) = taken {
            let cost = max_cost(request.exchange, candidates, ask, habits, request.selected_at);
            request.exchange.reserve_limits_with_draw(entry, &cost).await?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the cost of a request to reserve. For the limits per minute: the tokens of the prompt, estimated from its
/// bytes, and those of the response, up to the client's cap or the usual length of this key's responses. For the
/// budgets: the price of the same response and of the most tokens that the prompt may have, as for the reservation of
/// credits, at the most expensive candidate.
fn max_cost(
    x: &Exchange<'_>,
    chosen: &CandidateSet,
    ask: &InferenceRequest,
    habits: TypicalKeyUsage,
    at: u64,
) -> CostEstimate {
    let (input, output) = estimate_tokens(ask, habits.usual_output_tokens);
    if !habits.has_budget {
        return CostEstimate { input, output, money: MicroCredits(0) };
    }
    let billing = &x.config.settings.billing;
    // For budgets, a response without a cap is estimated at no fewer tokens than the reservation of credits assumes.
    let usual = habits.usual_output_tokens.max(billing.reserve_output_tokens);
    let offers = || chosen.entries.iter().filter_map(|entry| x.config.offers.get(entry.offer));
    let with_credits = billing.prepaid || !offers().all(|offer| offer.pricing.is_priced_by_energy(at));
    let worth = offers().map(|offer| {
        let work = reserve::max_work(offer, ask, max_output(offer, chosen, ask, usual));
        offer.pricing.max_budget_charge(&work, chosen.batch, at, billing.eur_per_credit, with_credits)
    });
    CostEstimate { input, output, money: worth.max().unwrap_or_default() }
}

/// Returns the maximum number of output tokens of a request at an offer. Each choice counts with the client's
/// `max_tokens`, or with `usual` if there is none, at most the offer's maximum. The result is the sum over all choices;
/// 0 for a request that generates no tokens.
fn max_output(offer: &OfferState, chosen: &CandidateSet, ask: &InferenceRequest, usual: u64) -> u64 {
    if !ask.kind.generates_tokens() {
        return 0;
    }
    let window = offer.offer.context_length;
    let most = chosen
        .reduced_max_tokens(offer, ask)
        .into_iter()
        .chain(offer.offer.max_output)
        .min()
        .unwrap_or(window);
    ask.max_tokens.unwrap_or(usual).min(most).min(window).saturating_mul(ask.generation_count())
}

/// Returns the tokens of input and output for the limits per minute. Work that is not counted in tokens uses none.
fn estimate_tokens(ask: &InferenceRequest, usual: u64) -> (u64, u64) {
    let input = ask.estimate_unreported_usage(0).input.max(1);
    match ask.kind.spec().unit {
        WorkUnit::GeneratedTokens => {
            let images = u64::from(ask.image_count).saturating_mul(IMAGE_TOKENS);
            let each = ask.max_tokens.unwrap_or(usual);
            let input = input.saturating_add(images).saturating_mul(ask.prompt_read_count());
            (input, each.saturating_mul(ask.generation_count()))
        }
        WorkUnit::InputTokens => (input, 0),
        WorkUnit::Images | WorkUnit::AudioSeconds => (0, 0),
    }
}
