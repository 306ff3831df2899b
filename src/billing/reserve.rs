//! Reservation before a request is sent: selects the wallet that pays, or refuses with the missing amount.

use super::balance::Purse;
use super::{Hold, Ledger, format};
use penstock_contract::{Code, MicroCredits, NanoKwh, Refusal};
use penstock_ledger::Wallet;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Highest possible cost of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Micro-credits, if credits pay.
    pub credits: i64,
    /// Nano-kWh, if the energy wallet may pay.
    pub energy: Option<i64>,
    /// Amount in 1e-8 EUR.
    pub eur: i64,
}

impl Ledger {
    /// Reserves the highest possible cost of a request, before it is sent to a provider.
    ///
    /// # Errors
    /// Returns 402 with the required and the available amount, and whether it suffices without the holds of other
    /// requests; 503 while too much is unwritten.
    pub fn reserve(
        self: &Arc<Self>,
        account: &str,
        key: &Arc<str>,
        request: &str,
        need: Need,
        prepaid: bool,
    ) -> Result<Hold, Refusal> {
        let purse = self.purse(account);
        self.queue.expose(need.eur);
        let pressed = self.pressed();
        if pressed != self.turned_away.load(Ordering::Relaxed) {
            self.turned_away.store(pressed, Ordering::Relaxed);
        }
        let taken = if pressed { Err(unwritten()) } else { choose(&purse, need, prepaid) };
        let (wallet, amount) = match taken {
            Ok(taken) => taken,
            Err(refusal) => {
                self.queue.expose(-need.eur);
                return Err(refusal);
            }
        };
        let hold = Hold::new(self.clone(), purse, request.into(), key.clone(), wallet, amount, need.eur);
        hold.reserved();
        Ok(hold)
    }
}

/// Selects the wallet that pays, and the amount to hold: energy if it covers the request or need not
/// (postpaid), else credits.
fn choose(purse: &Purse, need: Need, prepaid: bool) -> Result<(Wallet, i64), Refusal> {
    if let Some(energy) = need.energy
        && purse.take(Wallet::Energy, energy, prepaid).is_ok()
    {
        return Ok((Wallet::Energy, energy));
    }
    match purse.take(Wallet::Credits, need.credits, prepaid) {
        Ok(()) => Ok((Wallet::Credits, need.credits)),
        Err(available) => Err(insufficient(purse, need, available)),
    }
}

fn insufficient(purse: &Purse, need: Need, available: i64) -> Refusal {
    let (required, available) = (MicroCredits(need.credits).credits(), MicroCredits(available).credits());
    let held = purse.covers(Wallet::Credits, need.credits)
        || need.energy.is_some_and(|energy| purse.covers(Wallet::Energy, energy));
    let message = format!(
        "The account's balance does not cover this request: it may take up to {} credits, and {} are available{}.",
        required.normalize(),
        available.normalize(),
        if held { " while other requests are in flight" } else { "" },
    );
    let refusal = Refusal::because(Code::InsufficientCredits, message)
        .with("wallet", Wallet::Credits.name())
        .with("required", format::number(required))
        .with("available", format::number(available));
    let refusal = if held { refusal.held() } else { refusal };
    match need.energy {
        None => refusal,
        Some(energy) => {
            let there = NanoKwh(purse.available(Wallet::Energy)).kwh();
            let both = [("required_kwh", NanoKwh(energy).kwh()), ("available_kwh", there)];
            let both: serde_json::Map<String, Value> =
                both.into_iter().map(|(name, kwh)| (name.to_owned(), format::number(kwh))).collect();
            refusal.with("energy", Value::Object(both))
        }
    }
}

fn unwritten() -> Refusal {
    let message = "Charges cannot be recorded at the moment, so requests are refused; try again shortly.";
    Refusal::because(Code::Unavailable, message).retry_after(5)
}
