//! Value of corrections in EUR. All calls that read the store block.

use super::report::ReportError;
use super::rerate::wallet_unit_price;
use penstock_ledger::EntryKind;
use penstock_storage::ledger::LedgerStore;
use rust_decimal::Decimal;

/// Decimal places of amounts in EUR.
const EUR_SCALE: u32 = 8;

/// Returns the refund in EUR of a correction that replaces the amount of an entry; negative if the customer pays more,
/// zero for an entry that is not a charge. Returns `None` if the new amount is worth more than a decimal number holds.
///
/// The new amount is valued at the price of a credit or kWh in the pricing terms of the charge. The EUR of the charge
/// are rounded to the value of a micro-credit or less, so their ratio to a small amount is not that price.
///
/// # Errors
/// Returns an error if the store cannot be read, or if the ledger does not have the pricing terms.
pub fn correction_refund_eur(
    store: &LedgerStore,
    entry: &EntryKind,
    new_amount: i64,
) -> Result<Option<Decimal>, ReportError> {
    let EntryKind::Settle { wallet, amount, sale, .. } = entry else { return Ok(Some(Decimal::ZERO)) };
    if new_amount == 0 || new_amount == *amount {
        return Ok(refund_eur((*amount, sale.eur), new_amount, Decimal::ZERO));
    }
    let unit_price = wallet_unit_price(store, &sale.terms, *wallet)?;
    Ok(refund_eur((*amount, sale.eur), new_amount, unit_price))
}

/// Computes the refund of a charge, given as its amount and its value in EUR: its value less that of the new amount.
/// `unit_price` is the price of a micro-credit or nano-kWh in EUR. A lower amount never costs more than the charge, and
/// a higher one never less.
fn refund_eur((amount, eur): (i64, Decimal), new_amount: i64, unit_price: Decimal) -> Option<Decimal> {
    if new_amount == amount {
        return Some(Decimal::ZERO);
    }
    let value = Decimal::from(new_amount).checked_mul(unit_price)?.round_dp(EUR_SCALE);
    let value = if new_amount > amount { value.max(eur) } else { value.min(eur) };
    eur.checked_sub(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_core::TokenUsage;
    use penstock_pricing::{BilledWork, BillingMode, PayingWallet, Tariff, compute_charge};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn eur(units: i64) -> Decimal {
        Decimal::new(units, EUR_SCALE)
    }

    #[test]
    fn a_small_charge_is_raised_at_the_price_of_a_credit() {
        // One micro-credit at 1 EUR per credit; the exact price of the work was between half a micro-credit and 1.5.
        for charged in [51, 78, 100, 130] {
            let refund = refund_eur((1, eur(charged)), 5_000_000, Decimal::new(1, 6)).unwrap();
            assert_eq!(eur(charged) - refund, Decimal::from(5), "{charged}");
            let refund = refund_eur((1, eur(charged)), 0, Decimal::new(1, 6)).unwrap();
            assert_eq!(refund, eur(charged), "{charged}");
            assert_eq!(refund_eur((1, eur(charged)), 1, Decimal::new(1, 6)), Some(Decimal::ZERO));
        }
        // A nano-kWh at 0.20 EUR per kWh is worth less than the smallest EUR amount.
        let refund = refund_eur((2, eur(0)), 10_000_000_000, Decimal::new(2, 10)).unwrap();
        assert_eq!(refund, Decimal::from(-2));
    }

    #[test]
    fn a_value_out_of_range_is_none() {
        assert_eq!(refund_eur((1, eur(1)), i64::MAX, Decimal::MAX), None);
    }

    #[test]
    fn a_corrected_charge_is_worth_its_credits() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let eur_per_credit = Decimal::new(random.random_range(1..2_000_000), 6);
            let tariff = Tariff {
                input: Some(Decimal::new(random.random_range(1..100_000_000), 9)),
                cached_input: None,
                output: None,
                image: None,
                minute: None,
                eur_per_kwh: Decimal::ZERO,
                billing: BillingMode::Credits,
            };
            let usage = TokenUsage { input: random.random_range(0..5_000), ..TokenUsage::default() };
            let (work, wallet) = (BilledWork::Tokens(usage), PayingWallet::Credits);
            let charge = compute_charge(&tariff, &work, wallet, false, Decimal::ZERO, eur_per_credit);
            let amount = charge.credits.0;
            let near = amount.saturating_sub(2).max(0)..amount.saturating_add(3);
            let new_amount = if random.random_bool(0.5) {
                random.random_range(near)
            } else {
                random.random_range(0..10_000_000)
            };
            let unit_price = eur_per_credit * Decimal::new(1, 6);
            let refund = refund_eur((amount, charge.eur), new_amount, unit_price).unwrap();
            let case = (usage.input, &tariff.input, eur_per_credit, charge, new_amount);
            if new_amount == amount {
                assert_eq!(refund, Decimal::ZERO, "{case:?}");
            } else {
                let value = (Decimal::from(new_amount) * unit_price).round_dp(EUR_SCALE);
                assert_eq!(charge.eur - refund, value, "{case:?}");
                assert!(refund.is_zero() || refund.is_sign_negative() == (new_amount > amount), "{case:?}");
            }
        }
    }
}
