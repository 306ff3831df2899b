//! From what was sold to what is owed.

use crate::round;
use crate::tariff::{Billing, Tariff};
use penstock_contract::{MicroCredits, NanoKwh, Usage};
use rust_decimal::Decimal;

/// A millionth.
const PER_MILLION: Decimal = Decimal::from_parts(1, 0, 0, false, 6);
/// The price of a batch against a request at once.
const BATCH: Decimal = Decimal::from_parts(5, 0, 0, false, 1);

/// What the client pays for: the successful attempt's work, up to where it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sold {
    /// Tokens in and out; embeddings and rerank have no output.
    Tokens(Usage),
    /// Images.
    Images(u32),
    /// Seconds of audio.
    Audio(Decimal),
}

/// What pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaidWith {
    /// The account's credits.
    Credits,
    /// The account's energy wallet.
    Energy,
}

impl PaidWith {
    /// `paid_with` on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }
}

/// What one request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Taken from the credits; zero when the energy wallet pays.
    pub credits: MicroCredits,
    /// Taken from the energy wallet; zero when credits pay.
    pub energy: NanoKwh,
    /// `billing_cost.energy`: the energy component in EUR, eight places. The
    /// charge itself when the energy wallet pays; contained in it when credits do.
    pub energy_eur: Decimal,
    /// What is owed in all, EUR, eight places.
    pub eur: Decimal,
    /// What pays.
    pub paid_with: PaidWith,
}

impl Charge {
    /// Nothing was delivered, so nothing is owed.
    #[must_use]
    pub const fn nothing(paid_with: PaidWith) -> Self {
        Self {
            credits: MicroCredits(0),
            energy: NanoKwh(0),
            energy_eur: Decimal::ZERO,
            eur: Decimal::ZERO,
            paid_with,
        }
    }
}

/// The charge for what was sold.
///
/// - `wallet`: what is to pay. The energy wallet pays only where the tariff is
///   billed in energy; elsewhere credits do, whatever is asked.
/// - `batch`: half the price.
/// - `billable_kwh`: energy for the bill, kWh.
/// - `eur_per_credit`: more than zero.
///
/// Where credits pay for a model billed in energy, its price per unit counts if
/// it has one, else the energy's price.
///
/// More work never costs less, so the charge for the most that a request may
/// use is a sound reserve.
#[must_use]
pub fn charge(
    tariff: &Tariff,
    sold: &Sold,
    wallet: PaidWith,
    batch: bool,
    billable_kwh: Decimal,
    eur_per_credit: Decimal,
) -> Charge {
    let discount = if batch { BATCH } else { Decimal::ONE };
    let kwh = billable_kwh.max(Decimal::ZERO).saturating_mul(discount);
    let energy = kwh.saturating_mul(tariff.eur_per_kwh.max(Decimal::ZERO));
    let energy_eur = round::places(energy, 8);
    if wallet == PaidWith::Energy && tariff.billing == Billing::Energy {
        return Charge {
            credits: MicroCredits(0),
            energy: nano(kwh),
            energy_eur,
            eur: energy_eur,
            paid_with: PaidWith::Energy,
        };
    }
    let eur = match units(tariff, sold) {
        Some(eur) => eur.saturating_mul(discount),
        None if tariff.billing == Billing::Energy => energy,
        None => Decimal::ZERO,
    };
    Charge {
        credits: credits(eur, eur_per_credit),
        energy: NanoKwh(0),
        energy_eur,
        eur: round::places(eur, 8),
        paid_with: PaidWith::Credits,
    }
}

/// EUR by unit prices, not rounded. `None` when the tariff has none for this.
fn units(tariff: &Tariff, sold: &Sold) -> Option<Decimal> {
    let eur = match sold {
        Sold::Tokens(usage) => tokens(tariff, usage)?,
        Sold::Images(count) => tariff.image?.saturating_mul(Decimal::from(*count)),
        Sold::Audio(seconds) => {
            let eur = tariff.minute?.saturating_mul((*seconds).max(Decimal::ZERO));
            eur.checked_div(Decimal::from(60)).unwrap_or(Decimal::MAX)
        }
    };
    Some(eur.max(Decimal::ZERO))
}

fn tokens(tariff: &Tariff, usage: &Usage) -> Option<Decimal> {
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

fn credits(eur: Decimal, eur_per_credit: Decimal) -> MicroCredits {
    if eur.is_zero() {
        return MicroCredits(0);
    }
    MicroCredits(round::ratio(eur, eur_per_credit, 6).unwrap_or(i64::MAX))
}

fn nano(kwh: Decimal) -> NanoKwh {
    NanoKwh(round::ratio(kwh, Decimal::ONE, 9).unwrap_or(i64::MAX))
}
