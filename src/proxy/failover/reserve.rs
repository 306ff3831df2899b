//! What a request may come to, set aside before anybody is asked.
//!
//! A bound where there is one: bytes of text are no fewer than its tokens, and
//! `max_tokens` caps the rest. Without `max_tokens` the output is an estimate
//! (`billing.reserve_output_tokens`); should an answer come to more, the excess
//! is charged all the same and may leave the account in debt.

use super::select::Selection;
use super::settle;
use crate::billing::{Hold, Need};
use crate::proxy::exchange::Exchange;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Ask, Done, Kind, Refusal, Task, Usage};

/// Sets aside what the dearest of the chosen offers may cost.
///
/// # Errors
/// The account does not have it, or too much is unwritten.
pub fn reserve(x: &Exchange<'_>, ask: &Ask, chosen: &Selection, at: u64) -> Result<Hold, Refusal> {
    let billing = &x.live.settings.billing;
    let mut most: Option<Need> = None;
    for offer in chosen.entries.iter().filter_map(|entry| x.live.offers.get(entry.offer)) {
        let done = done(offer, ask, billing.reserve_output_tokens);
        let need = offer.bill.need(&done, chosen.batch, at, billing.eur_per_credit);
        most = Some(match most {
            None => need,
            Some(most) => Need {
                credits: most.credits.max(need.credits),
                // The energy wallet pays only where it may pay whoever answers.
                energy: most.energy.zip(need.energy).map(|(one, other)| one.max(other)),
                eur: most.eur.max(need.eur),
            },
        });
    }
    let (grant, id) = (&x.grant, x.id.as_str());
    x.house.ledger.reserve(&grant.account.id, &grant.public_id, id, most.unwrap_or_default(), billing.prepaid)
}

/// The most work that an offer may do for an ask.
fn done(offer: &OfferLive, ask: &Ask, usual: u64) -> Done {
    let input = ask.most_input();
    match ask.kind {
        Kind::Chat => {
            let window = offer.offer.context_length;
            // Choices that are asked for one by one have the prompt each.
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

/// So many images; so much sound as its file holds by measure, or as its bytes can hold.
pub(super) fn media(offer: &OfferLive, ask: &Ask) -> Done {
    match &ask.task {
        Task::Draw(draw) => settle::images(draw.n, draw, ask, offer),
        Task::Transcribe(task) => Done::Audio { seconds: task.sound.most_seconds() },
        Task::Talk | Task::Embed(_) | Task::Rerank(_) => Done::Unknown,
    }
}
