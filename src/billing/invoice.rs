//! Figures of an invoice, computed from the usage rollups and grouped by unit price, key, day and location. The keys,
//! the days, the locations, and the lines together with the corrections each add up to the same amounts, which are the
//! sums of the ledger's entries. All calls block.

use super::invoice_corrections::{CorrectionLine, corrections_of_days};
use super::invoice_prices::{price_class, prices_of_class};
use crate::billing::report::ReportError;
use crate::billing::rerate::load_terms;
use crate::billing::rollups::query::DayReader;
use penstock_core::ApiError;
use penstock_core::calendar::UtcDay;
use penstock_footprint::constants::{EMBODIED_CO2E_GRAMS_PER_WH, HOST_FACTOR, IDLE_FACTOR};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{DayNumber, PriceClass, RollupDimensions, UsageOutcome, UsageRange, UsageSums};
use rust_decimal::Decimal;
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of groups of an invoice. The number of rollups is not limited: only their sums are in memory.
const MAX_GROUPS: usize = 100_000;

/// Sums of a row, with the amounts of CO2 equivalent that the rollups do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvoiceSums {
    /// Requests, tokens, amounts and footprint.
    pub usage: UsageSums,
    /// CO2 equivalent in grams by the market-based method: power that a contract covers is left out.
    pub market_g: Decimal,
    /// CO2 equivalent in grams of making the hardware; the other sums do not include it.
    pub embodied_g: Decimal,
    /// Energy in kWh under the providers' contracts for renewable power.
    pub contract_kwh: Decimal,
    /// Renewable energy in kWh from the grid, within the energy that no contract covers.
    pub grid_renewable_kwh: Decimal,
}

impl InvoiceSums {
    /// Adds the sums of another row to these.
    pub fn merge(&mut self, other: &Self) {
        self.usage.add(&other.usage);
        self.market_g = self.market_g.saturating_add(other.market_g);
        self.embodied_g = self.embodied_g.saturating_add(other.embodied_g);
        self.contract_kwh = self.contract_kwh.saturating_add(other.contract_kwh);
        self.grid_renewable_kwh = self.grid_renewable_kwh.saturating_add(other.grid_renewable_kwh);
    }

    /// Subtracts the amounts of a correction, which has no other figures.
    fn subtract_amounts(&mut self, correction: &Self) {
        let (billed, other) = (&mut self.usage.billed, &correction.usage.billed);
        billed.credits -= other.credits;
        billed.energy -= other.energy;
        billed.eur = billed.eur.saturating_sub(other.eur);
    }
}

/// Subtracts the amounts of a correction from its group. Removes the group if nothing remains in it.
fn subtract_from<K: Ord + Borrow<str>>(
    groups: &mut BTreeMap<K, InvoiceSums>,
    name: &str,
    correction: &InvoiceSums,
) {
    let Some(sums) = groups.get_mut(name) else { return };
    sums.subtract_amounts(correction);
    if *sums == InvoiceSums::default() {
        groups.remove(name);
    }
}

/// Key of an invoice line: the model, its location and its prices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvoiceLineKey {
    /// Catalogue id of the model; empty for corrections of unknown charges.
    pub model: Arc<str>,
    /// City and country of the data centre.
    pub location: Arc<str>,
    /// Class of the prices; `None` for a correction of an unknown charge, or if an earlier version added up requests
    /// of several classes.
    pub class: Option<PriceClass>,
    /// Prices of the class in the order of [`PRICE_NAMES`], EUR; each is `None` if it does not apply.
    pub prices: [Option<String>; PRICE_NAMES.len()],
}

/// Names of the prices in the terms: per million tokens, image, minute of audio, kWh and credit.
pub const PRICE_NAMES: [&str; 7] =
    ["input", "cached_input", "output", "image", "minute", "eur_per_kwh", "eur_per_credit"];

/// Figures of an invoice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvoiceFigures {
    /// Sums of the whole period.
    pub total: InvoiceSums,
    /// Sums by model, location and prices; only charges.
    pub lines: BTreeMap<InvoiceLineKey, InvoiceSums>,
    /// Corrections of charges, in the order of time.
    pub corrections: Vec<CorrectionLine>,
    /// Sums by the public id of the key.
    pub keys: BTreeMap<Arc<str>, InvoiceSums>,
    /// Sums of the invoice by day.
    pub days: BTreeMap<String, InvoiceSums>,
    /// Sums by location. Requests without an answer, and corrections of unknown charges, have the empty name.
    pub locations: BTreeMap<Arc<str>, InvoiceSums>,
    /// Methods by which the footprint was determined.
    pub methods: BTreeSet<String>,
    /// Sources of the grid's intensity.
    pub grid_sources: BTreeSet<String>,
    /// Contracts for renewable power.
    pub contracts: BTreeSet<String>,
}

/// Facts of pricing terms that an invoice needs; each is `None` or 0 if the terms do not state it.
#[derive(Clone, Debug, Default)]
pub(super) struct InvoiceTerms {
    /// Prices in the order of [`PRICE_NAMES`], EUR.
    pub(super) prices: [Option<String>; PRICE_NAMES.len()],
    /// Share of the power that a contract covers, from 0 to 1.
    covered: Decimal,
    /// Renewable share of the grid, from 0 to 1.
    grid_renewable: Decimal,
    /// Embodied grams of CO2 equivalent per kWh at the building's meter.
    embodied_per_kwh: Decimal,
    /// Method by which the footprint was determined.
    pub(super) method: Option<String>,
    /// Zone, source, year and intensity of the grid.
    pub(super) grid: Option<String>,
    /// Contract for renewable power.
    pub(super) contract: Option<String>,
}

/// Cache of the invoice facts of pricing terms, by the id of the terms.
#[derive(Default)]
pub(super) struct PricingTermsCache(BTreeMap<Arc<str>, InvoiceTerms>);

impl PricingTermsCache {
    /// Returns the facts of pricing terms; `None` for the empty id of a row without terms.
    pub(super) fn read_invoice_terms(
        &mut self,
        store: &LedgerStore,
        id: &Arc<str>,
    ) -> Result<Option<&InvoiceTerms>, ReportError> {
        if !id.is_empty() && !self.0.contains_key(id) {
            self.0.insert(id.clone(), InvoiceTerms::parse(&load_terms(store, id)?));
        }
        Ok(self.0.get(id))
    }
}

impl InvoiceTerms {
    fn parse(terms: &Value) -> Self {
        let text = |path: &str| terms.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let decimal = |path: &str| text(path).and_then(|text| Decimal::from_str_exact(&text).ok());
        let covered = decimal("/contract/share").unwrap_or_default().clamp(Decimal::ZERO, Decimal::ONE);
        let grid = text("/grid/source").map(|source| {
            let year = terms.pointer("/grid/year").map(Value::to_string).unwrap_or_default();
            let location = text("/location").unwrap_or_default();
            let zone = country_of_location(&location);
            let mark = if zone.is_empty() { "" } else { ": " };
            format!("{zone}{mark}{source}, {year}, {} g/kWh", text("/grid/g_per_kwh").unwrap_or_default())
        });
        Self {
            prices: PRICE_NAMES.map(|name| text(&format!("/{name}"))),
            covered,
            grid_renewable: decimal("/grid/renewable_percent")
                .and_then(|percent| percent.checked_div(Decimal::ONE_HUNDRED))
                .unwrap_or_default()
                .clamp(Decimal::ZERO, Decimal::ONE),
            embodied_per_kwh: decimal("/pue").and_then(embodied_per_kwh).unwrap_or_default(),
            contract: text("/contract/evidence").map(|evidence| {
                let location = text("/location").unwrap_or_default();
                let percent = covered.saturating_mul(Decimal::ONE_HUNDRED).normalize();
                format!("{location}, {percent} %, {evidence}")
            }),
            method: text("/methodology"),
            grid,
        }
    }
}

/// Returns the country in the name of a location, such as `France` in `Paris, France`; the country is the zone of the
/// grid. A name without a comma is returned unchanged, also the empty one of requests without an answer.
pub(super) fn country_of_location(location: &str) -> &str {
    location.rsplit_once(", ").map_or(location, |(_, country)| country)
}

/// Returns the embodied grams of CO2 equivalent per kWh at the meter of a building; `None` if `pue` is zero or a result
/// overflows. The energy of the GPUs is the energy at the meter minus the shares of the building, of the rest of the
/// server, and of idle machines.
fn embodied_per_kwh(pue: Decimal) -> Option<Decimal> {
    let overhead = pue.checked_mul(HOST_FACTOR)?.checked_mul(IDLE_FACTOR)?;
    EMBODIED_CO2E_GRAMS_PER_WH.checked_mul(Decimal::ONE_THOUSAND)?.checked_div(overhead)
}

/// Reads the figures of an account.
///
/// # Errors
/// Returns 400 if the invoice has too many groups, or 500 if the store cannot be read.
pub fn read_invoice_figures(
    store: &LedgerStore,
    account: &str,
    range: UsageRange,
) -> Result<InvoiceFigures, InvoiceError> {
    let (mut figures, mut terms) = (InvoiceFigures::default(), PricingTermsCache::default());
    // The rollups only show the days and hours that have corrections. The corrections themselves are read from the
    // ledger.
    let mut corrected = BTreeSet::new();
    DayReader::open(store)?.for_each(account, range.day_bounds(), |cell, sums| {
        if figures.group_count() > MAX_GROUPS {
            let expected = "from: the period has too many different keys and models; expected fewer days";
            return Err(InvoiceError::Refused(ApiError::invalid("from", expected)));
        }
        if cell.outcome == UsageOutcome::Granted {
            return Ok(());
        }
        figures.add(cell, sums, terms.read_invoice_terms(store, &cell.terms)?);
        let day = DayNumber::from_hour(cell.hour);
        corrected.extend((cell.outcome == UsageOutcome::Corrected).then_some(day));
        Ok(())
    })?;
    figures.corrections = corrections_of_days(store, account, &corrected, &mut terms)?;
    Ok(figures)
}

impl InvoiceFigures {
    /// Returns true if there is something to pay: a charge, or corrections that raise the amount. Corrections that only
    /// lower amounts belong on a credit note, or on an invoice of a longer period.
    #[must_use]
    pub fn has_amount_to_pay(&self) -> bool {
        !self.lines.is_empty() || self.total.usage.billed.eur > Decimal::ZERO
    }

    /// Removes the corrections with these entry numbers, because another document lists them already; returns the
    /// number of removed corrections.
    pub fn remove_corrections(&mut self, entries: &BTreeSet<u64>) -> usize {
        let (removed, left) = std::mem::take(&mut self.corrections)
            .into_iter()
            .partition::<Vec<_>, _>(|one| entries.contains(&one.entry));
        self.corrections = left;
        for one in &removed {
            self.total.subtract_amounts(&one.sums);
            subtract_from(&mut self.keys, &one.key, &one.sums);
            subtract_from(&mut self.days, &one.day, &one.sums);
            subtract_from(&mut self.locations, &one.line_key.location, &one.sums);
        }
        removed.len()
    }

    fn group_count(&self) -> usize {
        self.lines.len() + self.keys.len() + self.days.len() + self.locations.len()
    }

    fn add(&mut self, cell: &RollupDimensions, usage: &UsageSums, facts: Option<&InvoiceTerms>) {
        let sums = invoice_sums_with_carbon(usage, facts);
        self.total.merge(&sums);
        self.keys.entry(cell.key.clone()).or_default().merge(&sums);
        self.days.entry(UtcDay::from_unix(cell.hour.start()).to_string()).or_default().merge(&sums);
        self.locations.entry(cell.location.clone()).or_default().merge(&sums);
        if let Some(facts) = facts {
            self.methods.extend(facts.method.clone());
            self.grid_sources.extend(facts.grid.clone());
            self.contracts.extend(facts.contract.clone());
        }
        if cell.outcome == UsageOutcome::Charged {
            let class = price_class(cell, usage);
            let unit = InvoiceLineKey {
                model: cell.model.clone(),
                location: cell.location.clone(),
                class,
                prices: facts.map(|facts| prices_of_class(&facts.prices, class)).unwrap_or_default(),
            };
            self.lines.entry(unit).or_default().merge(&sums);
        }
    }
}

/// Returns the sums with the amounts of CO2 equivalent that follow from the terms. Failed attempts may have been at
/// other locations, so no contract and no hardware is assumed for them.
pub(super) fn invoice_sums_with_carbon(usage: &UsageSums, facts: Option<&InvoiceTerms>) -> InvoiceSums {
    let billed = &usage.billed;
    let mut sums = InvoiceSums { usage: usage.clone(), market_g: billed.carbon_g, ..InvoiceSums::default() };
    let (Some(facts), false) = (facts, billed.kwh.is_zero()) else { return sums };
    let answered = billed.kwh.saturating_sub(usage.failed_kwh).max(Decimal::ZERO);
    let share = answered.checked_div(billed.kwh).unwrap_or_default().min(Decimal::ONE);
    let covered = share.saturating_mul(facts.covered);
    sums.market_g = billed.carbon_g.saturating_mul(Decimal::ONE - covered).round_dp(9);
    sums.embodied_g = answered.saturating_mul(facts.embodied_per_kwh).round_dp(9);
    sums.contract_kwh = answered.saturating_mul(facts.covered).round_dp(12);
    let rest = answered.saturating_sub(sums.contract_kwh);
    sums.grid_renewable_kwh = rest.saturating_mul(facts.grid_renewable).round_dp(12);
    sums
}

/// Error of an invoice.
#[derive(Debug)]
pub enum InvoiceError {
    /// The ledger cannot be read.
    Store(ReportError),
    /// Refusal of the requested period.
    Refused(ApiError),
}

impl From<ReportError> for InvoiceError {
    fn from(error: ReportError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_str_exact(text).unwrap()
    }

    fn usage(kwh: &str, failed: &str, carbon: &str) -> UsageSums {
        let mut usage = UsageSums { failed_kwh: decimal(failed), ..UsageSums::default() };
        (usage.billed.kwh, usage.billed.carbon_g) = (decimal(kwh), decimal(carbon));
        usage
    }

    #[test]
    fn a_contract_covers_its_share_of_what_was_answered() {
        let facts = InvoiceTerms::parse(
            &json!({ "pue": "1.25", "contract": { "share": "0.8", "evidence": "hourly-ppa" } }),
        );
        let sums = invoice_sums_with_carbon(&usage("2", "0", "100"), Some(&facts));
        assert_eq!(sums.market_g, decimal("20"));
        // The GPUs use 2 kWh / (1.25 · 1.30 · 1.12), and each of these kWh has 73 g of embodied CO2 equivalent.
        assert_eq!(sums.embodied_g, (decimal("146") / decimal("1.82")).round_dp(9));
        let half_failed = invoice_sums_with_carbon(&usage("2", "1", "100"), Some(&facts));
        assert_eq!(
            (half_failed.market_g, half_failed.embodied_g.round_dp(3)),
            (decimal("60"), decimal("40.110"))
        );
        for none in [json!({}), json!({ "contract": null, "pue": "0" })] {
            let sums = invoice_sums_with_carbon(&usage("2", "0", "100"), Some(&InvoiceTerms::parse(&none)));
            assert_eq!((sums.market_g, sums.embodied_g), (decimal("100"), Decimal::ZERO), "{none}");
        }
        let absurd = InvoiceTerms::parse(&json!({ "contract": { "share": "7" } }));
        assert_eq!(invoice_sums_with_carbon(&usage("2", "0", "100"), Some(&absurd)).market_g, Decimal::ZERO);
        assert_eq!(invoice_sums_with_carbon(&usage("1", "5", "100"), Some(&facts)).embodied_g, Decimal::ZERO);
    }

    #[test]
    fn a_grid_factor_has_its_zone() {
        let grid = json!({ "source": "ADEME", "year": 2025, "g_per_kwh": "21" });
        let of = |location: &str| {
            InvoiceTerms::parse(&json!({ "grid": grid, "location": location })).grid.unwrap()
        };
        assert_eq!(of("Paris, France"), "France: ADEME, 2025, 21 g/kWh");
        assert_eq!(of(""), "ADEME, 2025, 21 g/kWh");
    }
}
