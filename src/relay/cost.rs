//! What an ask may use at most, for the limits: known before anything is sent.

use super::select::Selection;
use super::settle;
use crate::exchange::Exchange;
use crate::gate::Habits;
use crate::upstream::bill::Terms;
use crate::upstream::offer::OfferLive;
use penstock_contract::{Ask, Done, Kind, MicroCredits, Task, Usage};
use penstock_limits::Cost;
use penstock_pricing::PaidWith;

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
    let settings = &x.live.settings;
    let terms = Terms {
        eur_per_credit: settings.billing.eur_per_credit,
        provenance: settings.impact.provenance,
        batch: chosen.batch,
        wallet: PaidWith::Credits,
        at,
    };
    let offers = chosen.entries.iter().filter_map(|entry| x.live.offers.get(entry.offer));
    let prices = offers.map(|offer| {
        let cap = chosen.max_tokens(offer, ask).map(|cap| cap.saturating_mul(u64::from(ask.n)));
        offer.bill.worth(&work(offer, ask, input, cap.map_or(output, |cap| cap.min(output))), terms)
    });
    Cost { input, output, money: prices.max().unwrap_or_default() }
}

/// Tokens in and out. Work that is not counted in tokens uses none of them.
fn tokens(ask: &Ask, usual: u64) -> (u64, u64) {
    let input = ask.counted(0).input.max(1);
    match ask.kind {
        Kind::Chat => {
            let images = u64::from(ask.images).saturating_mul(IMAGE);
            let each = ask.max_tokens.unwrap_or(usual);
            (input.saturating_add(images), each.saturating_mul(u64::from(ask.n)))
        }
        Kind::Embedding | Kind::Rerank => (input, 0),
        Kind::Image | Kind::Transcription => (0, 0),
    }
}

/// What is done, at most. A sound whose file does not tell its length is known
/// only when it has been heard.
fn work(offer: &OfferLive, ask: &Ask, input: u64, output: u64) -> Done {
    match &ask.task {
        Task::Talk | Task::Embed(_) | Task::Rerank(_) => {
            Done::Tokens(Usage { input, output, ..Usage::default() })
        }
        Task::Draw(draw) => settle::images(draw.n, draw, offer),
        Task::Transcribe(task) => task.sound.seconds.map_or(Done::Unknown, |seconds| Done::Audio { seconds }),
    }
}
