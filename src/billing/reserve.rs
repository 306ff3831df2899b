//! Reservation before a request is sent: it selects the wallet that pays, or refuses the request with the amount that
//! is missing.

use super::balance::AccountBalance;
use super::{Hold, Ledger, format};
use penstock_core::{ApiError, ErrorCode, MicroCredits, NanoKwh};
use penstock_ledger::Wallet;
use penstock_storage::ledger::BalanceRecord;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Highest possible cost of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveAmounts {
    /// Amount in micro-credits, if the credit wallet pays.
    pub credits: i64,
    /// Amount in nano-kWh; `None` if the energy wallet may not pay.
    pub energy: Option<i64>,
    /// Amount in 1e-8 EUR.
    pub eur: i64,
}

impl Ledger {
    /// Reserves the highest possible cost of a request, before it is sent to a provider. With `prepaid`, a wallet has
    /// to cover the amount.
    ///
    /// # Errors
    /// Returns 402 with the required and the available amount, and with the information whether the balance would
    /// suffice without the holds of other requests. Returns 503 while too large an amount is unwritten, and for a
    /// prepaid request if this fleet member may not spend its leases any more.
    pub fn reserve(
        self: &Arc<Self>,
        account: &str,
        key: &Arc<str>,
        request: &str,
        need: ReserveAmounts,
        prepaid: bool,
    ) -> Result<Hold, ApiError> {
        if let Some(leases) = self.leases.as_ref().filter(|_| prepaid) {
            leases.ensure_spendable()?;
        }
        let account_balance = self.account_balance(account);
        self.queue.add_exposed_amount(need.eur);
        let pressed = self.is_exhausted();
        if pressed != self.refused_last.load(Ordering::Relaxed) {
            self.refused_last.store(pressed, Ordering::Relaxed);
        }
        let taken =
            if pressed { Err(not_recordable()) } else { choose_wallet(&account_balance, need, prepaid) };
        let (wallet, amount) = match taken {
            Ok(taken) => taken,
            Err(refusal) => {
                self.queue.add_exposed_amount(-need.eur);
                return Err(refusal);
            }
        };
        let hold =
            Hold::new(self.clone(), account_balance, request.into(), key.clone(), wallet, amount, need.eur);
        hold.queue_reservation();
        Ok(hold)
    }
}

/// Selects the wallet that pays, and holds the amount: the energy wallet if it may pay, and covers the request or the
/// account is postpaid; otherwise the credit wallet.
fn choose_wallet(
    account_balance: &AccountBalance,
    need: ReserveAmounts,
    prepaid: bool,
) -> Result<(Wallet, i64), ApiError> {
    if let Some(energy) = need.energy
        && account_balance.hold(Wallet::Energy, energy, prepaid).is_ok()
    {
        return Ok((Wallet::Energy, energy));
    }
    match account_balance.hold(Wallet::Credits, need.credits, prepaid) {
        Ok(()) => Ok((Wallet::Credits, need.credits)),
        Err(credits) => {
            let covers = |wallet, amount| account_balance.is_covered_without_holds(wallet, amount);
            let held = covers(Wallet::Credits, need.credits)
                || need.energy.is_some_and(|energy| covers(Wallet::Energy, energy));
            let energy = account_balance.available(Wallet::Energy);
            Err(insufficient_credits(need, BalanceRecord { credits, energy }, held))
        }
    }
}

/// Returns the refusal for lack of credits. `held` is true if the balance suffices without the holds of other requests.
pub(super) fn insufficient_credits(need: ReserveAmounts, available: BalanceRecord, held: bool) -> ApiError {
    let there = NanoKwh(available.energy).kwh();
    let (required, available) =
        (MicroCredits(need.credits).credits(), MicroCredits(available.credits).credits());
    let message = format!(
        "The account's balance does not cover this request: it may take up to {} credits, and {} are available{}.",
        required.normalize(),
        available.normalize(),
        if held { " while other requests are in flight" } else { "" },
    );
    let refusal = ApiError::with_message(ErrorCode::InsufficientCredits, message)
        .with_details_member("wallet", Wallet::Credits.name())
        .with_details_member("required", format::json_number(required))
        .with_details_member("available", format::json_number(available));
    let refusal = if held { refusal.caused_by_reservations() } else { refusal };
    match need.energy {
        None => refusal,
        Some(energy) => {
            let both = [("required_kwh", NanoKwh(energy).kwh()), ("available_kwh", there)];
            let both: serde_json::Map<String, Value> =
                both.into_iter().map(|(name, kwh)| (name.to_owned(), format::json_number(kwh))).collect();
            refusal.with_details_member("energy", Value::Object(both))
        }
    }
}

fn not_recordable() -> ApiError {
    let message = "Charges cannot be recorded at the moment, so requests are refused; try again shortly.";
    ApiError::with_message(ErrorCode::Unavailable, message).with_retry_after(5)
}
