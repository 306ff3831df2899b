//! Corrections of charges on an invoice, each with the entry that it corrects. All calls block.

use super::entry_merge::EntryMerge;
use super::invoice::{InvoiceSums, InvoiceUnit, TermsCache, with_carbon};
use super::invoice_prices::prices_of_class;
use super::ledger_export::starts_in_month;
use super::report::{ReportError, find_entry};
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_ledger::{CorrectedKind, EntryKind, LedgerEntry};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{PriceClass, UsageHour, UsageSums, location_of};
use std::sync::Arc;

/// Number of seconds in an hour.
const HOUR_SECONDS: u64 = 3_600;

/// Line of an invoice for one correction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrectionLine {
    /// Number of the correction's entry.
    pub entry: u64,
    /// Day of the correction.
    pub day: String,
    /// Number of the entry that is corrected.
    pub corrects_entry: u64,
    /// Day of the entry that is corrected; `None` if the ledger does not have it.
    pub corrects_day: Option<String>,
    /// Model, location and prices of the corrected charge.
    pub unit: InvoiceUnit,
    /// Sums of the correction.
    pub sums: InvoiceSums,
}

/// Reads the corrections of an account's charges in an hour.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub(super) fn corrections_in_hour(
    store: &LedgerStore,
    account: &str,
    hour: UsageHour,
    terms: &mut TermsCache,
) -> Result<Vec<CorrectionLine>, ReportError> {
    let (start, end) = (hour.start(), hour.start().saturating_add(HOUR_SECONDS));
    let month = UtcMonth::from_unix(start);
    let starts = starts_in_month(store, month, (start, 0))?;
    let mut merge = EntryMerge::open(store, Some(&month.to_string()), &starts)?;
    let mut found = Vec::new();
    while let Some((entry, _)) = merge.next_entry()?.filter(|(entry, _)| entry.at < end) {
        if entry.at >= start && *entry.account == *account && is_correction_of_charge(&entry.kind) {
            found.push(entry.clone());
        }
    }
    found.iter().filter_map(|entry| correction_line(store, entry, terms).transpose()).collect()
}

const fn is_correction_of_charge(kind: &EntryKind) -> bool {
    matches!(kind, EntryKind::Correct { what: CorrectedKind::Settle, .. })
}

/// Returns the line of a correction; `None` for another entry.
fn correction_line(
    store: &LedgerStore,
    entry: &LedgerEntry,
    terms: &mut TermsCache,
) -> Result<Option<CorrectionLine>, ReportError> {
    let EntryKind::Correct { of, .. } = &entry.kind else { return Ok(None) };
    let charge = find_entry(store, *of)?;
    let sold = charge.as_ref().and_then(|charge| match &charge.kind {
        EntryKind::Settle { wallet, sale, .. } => Some((*wallet, sale)),
        _ => None,
    });
    let mut unit = InvoiceUnit {
        model: sold.map_or_else(|| Arc::from(""), |(_, sale)| sale.model.clone()),
        location: Arc::from(""),
        class: sold.map(|(wallet, sale)| PriceClass::of_charge(wallet, sale.batch)),
        prices: Default::default(),
    };
    let mut sums = with_carbon(&UsageSums::of_entry(&entry.kind), None);
    if let Some((_, sale)) = sold {
        unit.location = location_of(&super::rerate::load_terms(store, &sale.terms)?.to_string());
        if let Some(facts) = terms.facts(store, &sale.terms)? {
            unit.prices = prices_of_class(&facts.prices, unit.class);
            sums = with_carbon(&UsageSums::of_entry(&entry.kind), Some(facts));
        }
    }
    let day = |entry: &LedgerEntry| UtcDay::from_unix(entry.at).to_string();
    Ok(Some(CorrectionLine {
        entry: entry.seq,
        day: day(entry),
        corrects_entry: *of,
        corrects_day: charge.as_ref().map(day),
        unit,
        sums,
    }))
}
