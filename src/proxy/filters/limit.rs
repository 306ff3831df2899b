//! Limits of tokens and money: takes the most that a request may use, before anything is sent.

use super::request::{InferenceRequest, RequestFilter};
use super::reserve;
use crate::limits::rate_limit::Habits;
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover::Selection;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Ask, Done, Kind, MicroCredits, Refusal, Task, Usage};
use penstock_limits::Cost;
use std::ops::ControlFlow;

/// Tokens that an image counts as until the provider reports its usage.
const IMAGE: u64 = 1_024;

/// Filter that reserves the limits of the key and its account, in place of the provisional permit.
pub struct ReserveLimits;

impl RequestFilter for ReserveLimits {
    const NAME: &'static str = "limit";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        let taken = (request.entry.take(), &request.candidates, &request.ask);
        if let (Some((entry, habits)), Some(candidates), Some(ask)) = taken {
            let cost = most(request.x, candidates, ask, habits, request.at);
            request.x.pass(entry, &cost)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the most that a request may use: the prompt as its bytes suggest, the response as long as the client allows
/// or as this key's responses usually are, and the price of both at the most expensive candidate.
fn most(x: &Exchange<'_>, chosen: &Selection, ask: &Ask, habits: Habits, at: u64) -> Cost {
    let (input, output) = tokens(ask, habits.output);
    if !habits.budgeted {
        return Cost { input, output, money: MicroCredits(0) };
    }
    let billing = &x.live.settings.billing;
    // Money is reserved more carefully than tokens: as much as the reservation for a response without a cap.
    let usual = habits.output.max(billing.reserve_output_tokens);
    let offers = || chosen.entries.iter().filter_map(|entry| x.live.offers.get(entry.offer));
    let with_credits = billing.prepaid || !offers().all(|offer| offer.bill.in_energy(at));
    let worth = offers().map(|offer| {
        let work = work(offer, ask, input, longest(offer, chosen, ask, usual));
        offer.bill.worth(&work, chosen.batch, at, billing.eur_per_credit, with_credits)
    });
    Cost { input, output, money: worth.max().unwrap_or_default() }
}

/// Returns the most tokens of all choices of an offer: the client's cap or else the usual number, at most the offer's.
fn longest(offer: &OfferLive, chosen: &Selection, ask: &Ask, usual: u64) -> u64 {
    if ask.kind != Kind::Chat {
        return 0;
    }
    let window = offer.offer.context_length;
    let most =
        chosen.max_tokens(offer, ask).into_iter().chain(offer.offer.max_output).min().unwrap_or(window);
    ask.max_tokens.unwrap_or(usual).min(most).min(window).saturating_mul(u64::from(ask.n))
}

/// Returns the tokens of input and output. Work that is not counted in tokens uses none.
fn tokens(ask: &Ask, usual: u64) -> (u64, u64) {
    let input = ask.counted(0).input.max(1);
    match ask.kind {
        Kind::Chat => {
            let images = u64::from(ask.images).saturating_mul(IMAGE);
            let each = ask.max_tokens.unwrap_or(usual);
            let input = input.saturating_add(images).saturating_mul(u64::from(ask.n));
            (input, each.saturating_mul(u64::from(ask.n)))
        }
        Kind::Embedding | Kind::Rerank => (input, 0),
        Kind::Image | Kind::Transcription => (0, 0),
    }
}

/// Returns the most work of an offer.
fn work(offer: &OfferLive, ask: &Ask, input: u64, output: u64) -> Done {
    match &ask.task {
        Task::Talk | Task::Embed(_) | Task::Rerank(_) => {
            Done::Tokens(Usage { input, output, ..Usage::default() })
        }
        Task::Draw(_) | Task::Transcribe(_) => reserve::media(offer, ask),
    }
}
