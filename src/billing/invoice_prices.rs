//! Unit prices of the lines of an invoice, by the class of the price.

use super::invoice::PRICE_NAMES;
use penstock_usage::{PriceClass, RollupDimensions, UsageSums};
use rust_decimal::Decimal;

/// Names of the prices that are the same for requests of batches, because half of the kWh or credits is charged
/// instead.
const FULL_PRICES: [&str; 2] = ["eur_per_kwh", "eur_per_credit"];
/// Price for requests of batches, as a share of the full price: 0.5.
const BATCH_FACTOR: Decimal = Decimal::from_parts(5, 0, 0, false, 1);

/// Returns the class of the price of a rollup with charges; `None` if an earlier version added up several classes.
pub(super) fn price_class(cell: &RollupDimensions, usage: &UsageSums) -> Option<PriceClass> {
    if cell.price != PriceClass::Standard {
        return Some(cell.price);
    }
    let billed = &usage.billed;
    let is_batch = match usage.batch_requests {
        0 => false,
        batch if batch == billed.requests => true,
        _ => return None,
    };
    match (billed.credits, billed.energy) {
        (_, 0) if is_batch => Some(PriceClass::Batch),
        (_, 0) => Some(PriceClass::Standard),
        (0, _) if is_batch => Some(PriceClass::BatchEnergy),
        (0, _) => Some(PriceClass::Energy),
        _ => None,
    }
}

/// Returns the prices of the terms as they apply to a class. A line of several classes gets the full prices.
pub(super) fn prices_of_class(
    prices: &[Option<String>; PRICE_NAMES.len()],
    class: Option<PriceClass>,
) -> [Option<String>; PRICE_NAMES.len()] {
    let (is_halved, is_energy) = match class {
        None | Some(PriceClass::Standard) => (false, false),
        Some(PriceClass::Batch) => (true, false),
        Some(PriceClass::Energy | PriceClass::BatchEnergy) => (false, true),
    };
    let mut of_class = prices.clone();
    for (name, price) in PRICE_NAMES.iter().zip(&mut of_class) {
        let is_full = FULL_PRICES.contains(name);
        if is_energy && !is_full {
            *price = None;
        }
        if let Some(text) = price.as_mut().filter(|_| is_halved && !is_full) {
            *text = halved(text);
        }
    }
    of_class
}

/// Returns half of a price; the price itself if it is no number.
fn halved(price: &str) -> String {
    let half = Decimal::from_str_exact(price).ok().and_then(|price| price.checked_mul(BATCH_FACTOR));
    half.map_or_else(|| price.to_owned(), |half| half.normalize().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_ledger::StatementSums;
    use penstock_usage::{HourNumber, UsageOutcome};

    fn class(
        price: PriceClass,
        (requests, batch): (u64, u64),
        (credits, energy): (i128, i128),
    ) -> Option<PriceClass> {
        let name = || "".into();
        let (account, key, model, provider, location, terms) =
            (name(), name(), name(), name(), name(), name());
        let (hour, outcome) = (HourNumber(1), UsageOutcome::Charged);
        let cell = RollupDimensions { account, hour, key, model, provider, location, terms, outcome, price };
        let billed = StatementSums { requests, credits, energy, ..StatementSums::default() };
        price_class(&cell, &UsageSums { billed, batch_requests: batch, ..UsageSums::default() })
    }

    #[test]
    fn a_rollup_of_an_earlier_version_has_a_class_if_all_its_requests_have() {
        use PriceClass::{Batch, BatchEnergy, Energy, Standard};
        assert_eq!(class(Batch, (2, 2), (5, 0)), Some(Batch));
        assert_eq!(class(Standard, (2, 0), (5, 0)), Some(Standard));
        assert_eq!(class(Standard, (2, 2), (5, 0)), Some(Batch));
        assert_eq!(class(Standard, (2, 0), (0, 5)), Some(Energy));
        assert_eq!(class(Standard, (2, 2), (0, 5)), Some(BatchEnergy));
        assert_eq!(class(Standard, (2, 1), (5, 0)), None);
        assert_eq!(class(Standard, (2, 0), (5, 5)), None);
    }

    #[test]
    fn batches_pay_half_the_price_of_a_token_and_the_whole_price_of_a_kwh() {
        let price = |text: &str| Some(text.to_owned());
        // In the order of `PRICE_NAMES`.
        let prices = [price("0.15"), None, price("3"), None, None, price("0.4"), price("0.01")];
        assert_eq!(prices_of_class(&prices, Some(PriceClass::Standard)), prices);
        assert_eq!(prices_of_class(&prices, None), prices);
        let batch = [price("0.075"), None, price("1.5"), None, None, price("0.4"), price("0.01")];
        assert_eq!(prices_of_class(&prices, Some(PriceClass::Batch)), batch);
        let energy = [None, None, None, None, None, price("0.4"), price("0.01")];
        assert_eq!(prices_of_class(&prices, Some(PriceClass::BatchEnergy)), energy);
    }
}
