//! Reservation of credits: the highest possible price of a request is held before a provider is connected to.
//!
//! The input is bounded by its bytes, which are at least as many as its tokens, and `max_tokens` bounds the output.
//! Without `max_tokens` the output is an estimate (`billing.reserve_output_tokens`); the excess of a longer response
//! is charged too and may leave the account in debt.

use super::request::{InferenceRequest, RequestFilter};
use crate::billing::{Hold, Need};
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::failover::{Selection, images};
use crate::upstream::offer::OfferLive;
use penstock_contract::{Ask, Done, Kind, Refusal, Task, Usage};
use std::ops::ControlFlow;

/// Filter that reserves the price of the most expensive candidate.
pub struct ReserveCredits;

impl RequestFilter for ReserveCredits {
    const NAME: &'static str = "reserve";

    async fn check(request: &mut InferenceRequest<'_, '_>) -> Result<ControlFlow<Ended>, Refusal> {
        if let (Some(ask), Some(candidates)) = (&request.ask, &request.candidates) {
            request.hold = Some(reserve(request.x, ask, candidates, request.at)?);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Reserves the price of the most expensive candidate.
///
/// # Errors
/// The account has too few credits, or too much of the ledger is unwritten.
fn reserve(x: &Exchange<'_>, ask: &Ask, chosen: &Selection, at: u64) -> Result<Hold, Refusal> {
    let billing = &x.live.settings.billing;
    let mut most: Option<Need> = None;
    for offer in chosen.entries.iter().filter_map(|entry| x.live.offers.get(entry.offer)) {
        let done = done(offer, ask, billing.reserve_output_tokens);
        let need = offer.bill.need(&done, chosen.batch, at, billing.eur_per_credit);
        most = Some(match most {
            None => need,
            Some(most) => Need {
                credits: most.credits.max(need.credits),
                // The energy wallet pays only if it may pay for each candidate.
                energy: most.energy.zip(need.energy).map(|(one, other)| one.max(other)),
                eur: most.eur.max(need.eur),
            },
        });
    }
    let (grant, id) = (&x.grant, x.id.as_str());
    x.house.ledger.reserve(&grant.account.id, &grant.public_id, id, most.unwrap_or_default(), billing.prepaid)
}

/// Returns the most work that an offer may do for a request.
fn done(offer: &OfferLive, ask: &Ask, usual: u64) -> Done {
    let input = ask.most_input();
    match ask.kind {
        Kind::Chat => {
            let window = offer.offer.context_length;
            // Choices that are requested separately have the prompt each.
            let input = input.min(window).saturating_mul(u64::from(ask.n));
            let cap =
                ask.max_tokens.unwrap_or(usual).min(offer.offer.max_output.unwrap_or(window)).min(window);
            let output = cap.saturating_mul(u64::from(ask.n));
            Done::Tokens(Usage { input, output, ..Usage::default() })
        }
        Kind::Embedding | Kind::Rerank => Done::Tokens(Usage { input, ..Usage::default() }),
        Kind::Image | Kind::Transcription => media(offer, ask),
    }
}

/// Returns the most work of an image or audio request: images, or the measured or possible seconds of the file.
pub(super) fn media(offer: &OfferLive, ask: &Ask) -> Done {
    match &ask.task {
        Task::Draw(draw) => images(draw.n, draw, ask, offer),
        Task::Transcribe(task) => Done::Audio { seconds: task.sound.most_seconds() },
        Task::Talk | Task::Embed(_) | Task::Rerank(_) => Done::Unknown,
    }
}
