//! Recalculation of a day's charges from the usage and the terms that the ledger stores with them. All calls block.

use super::report::{ReportError, find_entry, for_each_entry};
use super::sale::eur_to_hundred_millionths;
use penstock_core::WorkDone;
use penstock_ledger::{EntryKind, UtcDay, UtcMonth, Wallet};
use penstock_pricing::{BilledWork, BillingMode, PayingWallet, Tariff, compute_charge};
use penstock_storage::ledger::LedgerStore;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of the recalculation of a day's charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecalculatedDay {
    /// Number of charges of the recalculated day.
    pub charges: u64,
    /// Sum of the charges in the ledger, in micro-credits.
    pub credits: i128,
    /// Sum of the charges in the ledger, in nano-kWh.
    pub energy: i128,
    /// Sum of the charges in the ledger, in EUR.
    pub eur: Decimal,
    /// Recalculated sums in micro-credits, nano-kWh and EUR.
    pub recalculated: (i128, i128, Decimal),
    /// Number of the first entry whose recalculated charge differs; `None` if there is none.
    pub first_difference: Option<u64>,
}

impl RecalculatedDay {
    /// Returns the result as JSON.
    #[must_use]
    pub fn to_json(&self, day: UtcDay) -> Value {
        let sums = |credits: i128, energy: i128, eur: Decimal| {
            json!({
                "credits": Decimal::from_i128_with_scale(credits, 6).normalize().to_string(),
                "energy_kwh": Decimal::from_i128_with_scale(energy, 9).normalize().to_string(),
                "eur": eur.normalize().to_string(),
            })
        };
        json!({
            "day": day.to_string(),
            "charges": self.charges,
            "charged": sums(self.credits, self.energy, self.eur),
            "computed_again": sums(self.recalculated.0, self.recalculated.1, self.recalculated.2),
            "same": self.first_difference.is_none(),
            "first_different_entry": self.first_difference,
        })
    }
}

/// Recalculates every charge of a day from its usage and its terms in the ledger.
///
/// # Errors
/// Returns an error if the store cannot be read, or if terms are missing.
pub fn recalculate_day(store: &LedgerStore, day: UtcDay) -> Result<RecalculatedDay, ReportError> {
    let mut known: BTreeMap<Arc<str>, (Tariff, Decimal)> = BTreeMap::new();
    let mut sums = RecalculatedDay::default();
    for_each_entry(store, UtcMonth::from_unix(day.start()), |entry| {
        let EntryKind::Settle { wallet, amount, sale, .. } = &entry.kind else { return Ok(()) };
        if UtcDay::from_unix(entry.at) != day {
            return Ok(());
        }
        if !known.contains_key(&sale.terms) {
            known.insert(sale.terms.clone(), parse_tariff(&load_terms(store, &sale.terms)?)?);
        }
        let Some((tariff, eur_per_credit)) = known.get(&sale.terms) else { return Ok(()) };
        let done = match (sale.images, sale.seconds.is_zero()) {
            (0, true) => WorkDone::Tokens(sale.usage),
            (0, false) => WorkDone::Audio { seconds: sale.seconds },
            (count, _) => WorkDone::Images { count, steps: None, pixels: None },
        };
        let sold: BilledWork = super::sale::billed_work(&done);
        let pays = match wallet {
            Wallet::Credits => PayingWallet::Credits,
            Wallet::Energy => PayingWallet::Energy,
        };
        let kwh = sale.billable_kwh.unwrap_or_default();
        let again = compute_charge(tariff, &sold, pays, sale.batch, kwh, *eur_per_credit);
        sums.charges += 1;
        sums.eur += sale.eur;
        sums.recalculated.2 += again.eur;
        let computed = match wallet {
            Wallet::Credits => {
                sums.credits += i128::from(*amount);
                sums.recalculated.0 += i128::from(again.credits.0);
                again.credits.0
            }
            Wallet::Energy => {
                sums.energy += i128::from(*amount);
                sums.recalculated.1 += i128::from(again.energy.0);
                again.energy.0
            }
        };
        if (computed != *amount
            || eur_to_hundred_millionths(again.eur) != eur_to_hundred_millionths(sale.eur))
            && sums.first_difference.is_none()
        {
            sums.first_difference = Some(entry.seq);
        }
        Ok(())
    })?;
    Ok(sums)
}

/// Returns the price of a micro-credit or a nano-kWh in EUR, under the terms of a charge.
///
/// # Errors
/// Returns an error if the store cannot be read, or if the terms are missing.
pub(super) fn wallet_unit_price(
    store: &LedgerStore,
    terms: &str,
    wallet: Wallet,
) -> Result<Decimal, ReportError> {
    let (tariff, eur_per_credit) = parse_tariff(&load_terms(store, terms)?)?;
    Ok(match wallet {
        Wallet::Credits => eur_per_credit.saturating_mul(Decimal::new(1, 6)),
        Wallet::Energy => tariff.eur_per_kwh.max(Decimal::ZERO).saturating_mul(Decimal::new(1, 9)),
    })
}

/// Parses terms: their tariff, and the price of a credit in EUR.
fn parse_tariff(terms: &Value) -> Result<(Tariff, Decimal), ReportError> {
    let price =
        |name: &str| terms.get(name).and_then(Value::as_str).and_then(|text| text.parse::<Decimal>().ok());
    let unreadable =
        || ReportError::Invalid("The terms of a charge are not what this version reads.".to_owned());
    let billing = match terms.get("billing").and_then(Value::as_str) {
        Some("credits") => BillingMode::Credits,
        Some("energy") => BillingMode::Energy,
        _ => return Err(unreadable()),
    };
    let tariff = Tariff {
        input: price("input"),
        cached_input: price("cached_input"),
        output: price("output"),
        image: price("image"),
        minute: price("minute"),
        eur_per_kwh: price("eur_per_kwh").ok_or_else(unreadable)?,
        billing,
    };
    Ok((tariff, price("eur_per_credit").ok_or_else(unreadable)?))
}

/// Reads pricing terms from the ledger as a JSON object.
pub(super) fn load_terms(store: &LedgerStore, id: &str) -> Result<Value, ReportError> {
    serde_json::from_str(&load_terms_text(store, id)?).map_err(|_| missing_terms(id))
}

fn missing_terms(id: &str) -> ReportError {
    ReportError::Invalid(format!("The terms {id} that a charge refers to are not in the ledger."))
}

/// Reads the JSON text of pricing terms from the ledger.
pub(super) fn load_terms_text(store: &LedgerStore, id: &str) -> Result<Arc<str>, ReportError> {
    let missing = || missing_terms(id);
    let number = store.entry_number_by_name(&format!("terms {id}"))?.ok_or_else(missing)?;
    match find_entry(store, number)?.ok_or_else(missing)?.kind {
        EntryKind::Terms { terms, .. } => Ok(terms),
        _ => Err(missing()),
    }
}
