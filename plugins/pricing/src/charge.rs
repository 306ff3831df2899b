//! Charge for the work of a request.

use crate::rounding;
use crate::tariff::{BillingMode, Tariff};
use penstock_core::{MicroCredits, NanoKwh, TokenUsage};
use rust_decimal::Decimal;

/// Factor for prices that are given per million tokens: 0.000001.
const PER_MILLION: Decimal = Decimal::from_parts(1, 0, 0, false, 6);
/// Factor from the regular price to the price of a batch request: 0.5.
const BATCH_FACTOR: Decimal = Decimal::from_parts(5, 0, 0, false, 1);

/// Work that the client pays for: the work of the successful attempt; if the client disconnects, only the work until
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BilledWork {
    /// Input and output tokens; embeddings and rerank have no output.
    Tokens(TokenUsage),
    /// Number of images.
    Images(u32),
    /// Seconds of audio.
    Audio(Decimal),
}

/// Wallet that pays a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayingWallet {
    /// Credits of the account.
    Credits,
    /// Energy wallet of the account.
    Energy,
}

impl PayingWallet {
    /// Returns the `paid_with` value of the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }
}

/// Charge of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCharge {
    /// Amount charged to the credits; zero if the energy wallet pays.
    pub credits: MicroCredits,
    /// Amount charged to the energy wallet; zero if credits pay.
    pub energy: NanoKwh,
    /// `billing_cost.energy`: the billable energy at the price per kWh, in EUR, eight decimal places. If the energy
    /// wallet pays, this is the charge itself; if credits pay by tokens, images or minutes, it is information only.
    pub energy_eur: Decimal,
    /// Total charge in EUR, eight decimal places.
    pub eur: Decimal,
    /// Wallet that pays.
    pub paid_with: PayingWallet,
}

impl RequestCharge {
    /// Returns a charge of zero, for a request without delivered output.
    #[must_use]
    pub const fn zero(paid_with: PayingWallet) -> Self {
        Self {
            credits: MicroCredits(0),
            energy: NanoKwh(0),
            energy_eur: Decimal::ZERO,
            eur: Decimal::ZERO,
            paid_with,
        }
    }
}

/// Computes the charge for billed work.
///
/// - `wallet`: requested wallet. The energy wallet pays only if the tariff is billed in energy; otherwise credits pay.
/// - `batch`: true for a batch request, which costs half the price.
/// - `billable_kwh`: energy for billing, kWh.
/// - `eur_per_credit`: price of a credit, more than zero.
///
/// If credits pay for a model billed in energy, the prices per token, image or minute apply if the tariff has them,
/// otherwise the price per kWh.
///
/// The charge never decreases with more work of one kind, such as more uncached tokens. So the charge for the maximum
/// usage of a request is a safe reservation, if cached tokens do not cost more than others.
#[must_use]
pub fn compute_charge(
    tariff: &Tariff,
    sold: &BilledWork,
    wallet: PayingWallet,
    batch: bool,
    billable_kwh: Decimal,
    eur_per_credit: Decimal,
) -> RequestCharge {
    let discount = if batch { BATCH_FACTOR } else { Decimal::ONE };
    let kwh = billable_kwh.max(Decimal::ZERO).saturating_mul(discount);
    let energy = kwh.saturating_mul(tariff.eur_per_kwh.max(Decimal::ZERO));
    let energy_eur = rounding::round_to_scale(energy, 8);
    if wallet == PayingWallet::Energy && tariff.billing == BillingMode::Energy {
        return RequestCharge {
            credits: MicroCredits(0),
            energy: to_nano_kwh(kwh),
            energy_eur,
            eur: energy_eur,
            paid_with: PayingWallet::Energy,
        };
    }
    let eur = match unit_price_eur(tariff, sold) {
        Some(eur) => eur.saturating_mul(discount),
        None if tariff.billing == BillingMode::Energy => energy,
        None => Decimal::ZERO,
    };
    RequestCharge {
        credits: to_micro_credits(eur, eur_per_credit),
        energy: NanoKwh(0),
        energy_eur,
        eur: rounding::round_to_scale(eur, 8),
        paid_with: PayingWallet::Credits,
    }
}

/// Computes the EUR amount by unit prices, unrounded; `None` if the tariff has no unit price for this work.
fn unit_price_eur(tariff: &Tariff, sold: &BilledWork) -> Option<Decimal> {
    let eur = match sold {
        BilledWork::Tokens(usage) => token_price_eur(tariff, usage)?,
        BilledWork::Images(count) => tariff.image?.saturating_mul(Decimal::from(*count)),
        BilledWork::Audio(seconds) => {
            let eur = tariff.minute?.saturating_mul((*seconds).max(Decimal::ZERO));
            eur.checked_div(Decimal::from(60)).unwrap_or(Decimal::MAX)
        }
    };
    Some(eur.max(Decimal::ZERO))
}

fn token_price_eur(tariff: &Tariff, usage: &TokenUsage) -> Option<Decimal> {
    let input = tariff.input?;
    let cached = usage.cached.min(usage.input);
    let mut eur = input.saturating_mul(Decimal::from(usage.input - cached));
    if cached > 0 {
        let price = tariff.cached_input.unwrap_or(input);
        eur = eur.saturating_add(price.saturating_mul(Decimal::from(cached)));
    }
    if let Some(output) = tariff.output {
        eur = eur.saturating_add(output.saturating_mul(Decimal::from(usage.output)));
    }
    Some(eur.saturating_mul(PER_MILLION))
}

fn to_micro_credits(eur: Decimal, eur_per_credit: Decimal) -> MicroCredits {
    if eur.is_zero() {
        return MicroCredits(0);
    }
    MicroCredits(rounding::divide_rounded(eur, eur_per_credit, 6).unwrap_or(i64::MAX))
}

fn to_nano_kwh(kwh: Decimal) -> NanoKwh {
    NanoKwh(rounding::divide_rounded(kwh, Decimal::ONE, 9).unwrap_or(i64::MAX))
}
