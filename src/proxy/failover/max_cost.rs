//! What an ask may use at most, for the limits: known before anything is sent.

use super::reserve;
use super::select::Selection;
use crate::limits::rate_limit::Habits;
use crate::proxy::exchange::Exchange;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Ask, Done, Kind, MicroCredits, Task, Usage};
use penstock_limits::Cost;

/// Tokens that an image is taken for until the provider says.
const IMAGE: u64 = 1_024;

/// The prompt as far as its bytes tell, the answer as long as the client
/// allows or as this key's answers usually are, and the price of both at the
/// dearest of the offers that may be asked.
pub fn most(x: &Exchange<'_>, chosen: &Selection, ask: &Ask, habits: Habits, at: u64) -> Cost {
    let (input, output) = tokens(ask, habits.output);
    if !habits.budgeted {
        return Cost { input, output, money: MicroCredits(0) };
    }
    let billing = &x.live.settings.billing;
    // Money is held with more care than tokens: as much as the reserve takes for an answer without a cap.
    let usual = habits.output.max(billing.reserve_output_tokens);
    let offers = || chosen.entries.iter().filter_map(|entry| x.live.offers.get(entry.offer));
    let with_credits = billing.prepaid || !offers().all(|offer| offer.bill.in_energy(at));
    let worth = offers().map(|offer| {
        let work = work(offer, ask, input, longest(offer, chosen, ask, usual));
        offer.bill.worth(&work, chosen.batch, at, billing.eur_per_credit, with_credits)
    });
    Cost { input, output, money: worth.max().unwrap_or_default() }
}

/// Tokens of all answers together that an offer may give: what the client allows or else as usual, as far as the
/// offer can.
fn longest(offer: &OfferLive, chosen: &Selection, ask: &Ask, usual: u64) -> u64 {
    if ask.kind != Kind::Chat {
        return 0;
    }
    let window = offer.offer.context_length;
    let most =
        chosen.max_tokens(offer, ask).into_iter().chain(offer.offer.max_output).min().unwrap_or(window);
    ask.max_tokens.unwrap_or(usual).min(most).min(window).saturating_mul(u64::from(ask.n))
}

/// Tokens in and out. Work that is not counted in tokens uses none of them.
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

/// What is done, at most.
fn work(offer: &OfferLive, ask: &Ask, input: u64, output: u64) -> Done {
    match &ask.task {
        Task::Talk | Task::Embed(_) | Task::Rerank(_) => {
            Done::Tokens(Usage { input, output, ..Usage::default() })
        }
        Task::Draw(_) | Task::Transcribe(_) => reserve::media(offer, ask),
    }
}
