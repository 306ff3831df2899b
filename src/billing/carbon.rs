//! Footprint of a period, summed up from the usage rollups by country, provider, month and account. All calls block.

use super::invoice::{
    InvoiceError, InvoiceSums, InvoiceTerms, PricingTermsCache, country_of_location, invoice_sums_with_carbon,
};
use super::rollups::query::{DayReader, account_names};
use penstock_core::calendar::UtcMonth;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{RollupDimensions, UsageOutcome, UsageRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of groups of a report. The number of rollups is not limited: only their sums are in memory.
const MAX_GROUPS: usize = 50_000;

/// Figures of a carbon report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarbonFigures {
    /// Sums of the whole period.
    pub total: InvoiceSums,
    /// Sums by country. Requests without an answer have the empty name.
    pub countries: BTreeMap<String, InvoiceSums>,
    /// Sums by provider. Requests without an answer have the empty name.
    pub providers: BTreeMap<String, InvoiceSums>,
    /// Sums by month, such as `2026-11`.
    pub months: BTreeMap<String, InvoiceSums>,
    /// Sums by account, only for [`ReportedAccounts::Each`].
    pub accounts: BTreeMap<String, InvoiceSums>,
    /// Methods by which the footprint was determined.
    pub methods: BTreeSet<String>,
    /// Sources of the grid's intensity.
    pub grid_sources: BTreeSet<String>,
    /// Contracts for renewable power.
    pub contracts: BTreeSet<String>,
    /// Sources of the grid's intensity by country.
    pub grid_sources_by_country: BTreeMap<String, BTreeSet<String>>,
}

/// Accounts of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportedAccounts {
    /// Report of one account.
    One(String),
    /// Report of all accounts together.
    Total,
    /// All accounts, with the sums of each.
    Each,
}

/// Reads the figures of a period for these accounts. Each day rollup is read once. `is_wanted` returns false once
/// nobody waits for the report any more.
///
/// # Errors
/// Returns 400 if the report has too many groups, 408 if nobody waits for it, or 500 if the store cannot be read.
pub fn read_carbon_figures(
    store: &LedgerStore,
    accounts: &ReportedAccounts,
    range: UsageRange,
    is_wanted: impl Fn() -> bool,
) -> Result<CarbonFigures, InvoiceError> {
    let names: Vec<Arc<str>> = match accounts {
        ReportedAccounts::One(name) => vec![name.as_str().into()],
        // The rollups of the whole gateway are stored under an empty account name.
        ReportedAccounts::Total => vec!["".into()],
        ReportedAccounts::Each => account_names(store)?,
    };
    let (mut figures, mut terms) = (CarbonFigures::default(), PricingTermsCache::default());
    let reader = DayReader::open(store)?;
    for name in names {
        let mut of_account = InvoiceSums::default();
        reader.for_each(&name, range.day_bounds(), |cell, usage| {
            if !is_wanted() {
                return Err(InvoiceError::Refused(ApiError::new(ErrorCode::RequestTimeout)));
            }
            if cell.outcome == UsageOutcome::Granted {
                return Ok(());
            }
            let facts = terms.read_invoice_terms(store, &cell.terms)?;
            let sums = invoice_sums_with_carbon(usage, facts);
            figures.add(cell, &sums, facts);
            of_account.merge(&sums);
            figures.check_size()
        })?;
        if *accounts == ReportedAccounts::Each && of_account != InvoiceSums::default() {
            figures.accounts.insert(name.to_string(), of_account);
            figures.check_size()?;
        }
    }
    Ok(figures)
}

impl CarbonFigures {
    fn add(&mut self, cell: &RollupDimensions, sums: &InvoiceSums, facts: Option<&InvoiceTerms>) {
        self.total.merge(sums);
        add_to(&mut self.countries, country_of_location(&cell.location), sums);
        add_to(&mut self.providers, &cell.provider, sums);
        add_to(&mut self.months, &UtcMonth::from_unix(cell.hour.start()).to_string(), sums);
        if let Some(facts) = facts {
            self.methods.extend(facts.method.clone());
            self.grid_sources.extend(facts.grid.clone());
            let country = country_of_location(&cell.location).to_owned();
            self.grid_sources_by_country.entry(country).or_default().extend(facts.grid.clone());
            self.contracts.extend(facts.contract.clone());
        }
    }

    fn check_size(&self) -> Result<(), InvoiceError> {
        if self.accounts.len() + self.providers.len() + self.countries.len() <= MAX_GROUPS {
            return Ok(());
        }
        let expected = "from: the period has too many different accounts and providers; expected fewer days";
        Err(InvoiceError::Refused(ApiError::invalid("from", expected)))
    }
}

fn add_to(groups: &mut BTreeMap<String, InvoiceSums>, name: &str, sums: &InvoiceSums) {
    match groups.get_mut(name) {
        Some(group) => group.merge(sums),
        None => {
            groups.insert(name.to_owned(), sums.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_limited_by_its_groups() {
        let mut figures = CarbonFigures::default();
        assert!(figures.check_size().is_ok());
        figures.accounts.extend((0..=MAX_GROUPS).map(|n| (n.to_string(), InvoiceSums::default())));
        assert!(matches!(figures.check_size(), Err(InvoiceError::Refused(_))));
    }

    #[test]
    fn the_country_is_the_last_part_of_a_location() {
        assert_eq!(
            [
                country_of_location("Paris, France"),
                country_of_location("Oslo, Viken, Norway"),
                country_of_location("")
            ],
            ["France", "Norway", ""]
        );
    }
}
