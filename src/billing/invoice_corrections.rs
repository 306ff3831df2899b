//! Corrections of charges on an invoice, each with the entry that it corrects. All calls block.

use super::entry_merge::EntryMerge;
use super::invoice::{InvoiceLineKey, InvoiceSums, PricingTermsCache, invoice_sums_with_carbon};
use super::invoice_prices::prices_of_class;
use super::ledger_export::chain_start_positions_in_month;
use super::report::{ReportError, find_entry};
use super::rollups::query::{DayReader, for_each_hour_rollup};
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_ledger::{CorrectedKind, EntryKind, LedgerEntry};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{DayNumber, HourNumber, PriceClass, UsageOutcome, UsageSums, data_center_location};
use std::collections::BTreeSet;
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
    /// Public id of the key of the corrected charge.
    pub key: Arc<str>,
    /// Number of the entry that is corrected.
    pub corrects_entry: u64,
    /// Day of the entry that is corrected; `None` if the ledger does not have it.
    pub corrects_day: Option<String>,
    /// Model, location and prices of the corrected charge.
    pub line_key: InvoiceLineKey,
    /// Sums of the correction.
    pub sums: InvoiceSums,
}

/// Reads the corrections of an account's charges from the first day up to the second day, which is excluded. Returns
/// them in the order of time.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn read_corrections(
    store: &LedgerStore,
    account: &str,
    days: (DayNumber, DayNumber),
) -> Result<Vec<CorrectionLine>, ReportError> {
    let mut corrected = BTreeSet::new();
    DayReader::open(store)?.for_each(account, days, |cell, _| {
        let day = DayNumber::from_hour(cell.hour);
        corrected.extend((cell.outcome == UsageOutcome::Corrected).then_some(day));
        Ok::<_, ReportError>(())
    })?;
    corrections_of_days(store, account, &corrected, &mut PricingTermsCache::default())
}

/// Reads the corrections of an account's charges on the given days.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub(super) fn corrections_of_days(
    store: &LedgerStore,
    account: &str,
    days: &BTreeSet<DayNumber>,
    terms: &mut PricingTermsCache,
) -> Result<Vec<CorrectionLine>, ReportError> {
    let mut found = Vec::new();
    for day in days {
        for hour in corrected_hours(store, account, *day)? {
            found.extend(corrections_in_hour(store, account, hour, terms)?);
        }
    }
    Ok(found)
}

/// Returns the hours of a day with corrections of an account's charges.
fn corrected_hours(
    store: &LedgerStore,
    account: &str,
    day: DayNumber,
) -> Result<BTreeSet<HourNumber>, ReportError> {
    let mut hours = BTreeSet::new();
    for_each_hour_rollup(store, account, (day.first_hour(), day.next().first_hour()), |cell, _| {
        hours.extend((cell.outcome == UsageOutcome::Corrected).then_some(cell.hour));
        Ok::<_, ReportError>(())
    })?;
    Ok(hours)
}

/// Reads the corrections of an account's charges in an hour.
fn corrections_in_hour(
    store: &LedgerStore,
    account: &str,
    hour: HourNumber,
    terms: &mut PricingTermsCache,
) -> Result<Vec<CorrectionLine>, ReportError> {
    let (start, end) = (hour.start(), hour.start().saturating_add(HOUR_SECONDS));
    let month = UtcMonth::from_unix(start);
    let starts = chain_start_positions_in_month(store, month, (start, 0))?;
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

/// Returns the line of a correction; `None` for an entry of another kind.
fn correction_line(
    store: &LedgerStore,
    entry: &LedgerEntry,
    terms: &mut PricingTermsCache,
) -> Result<Option<CorrectionLine>, ReportError> {
    let EntryKind::Correct { of, key, .. } = &entry.kind else { return Ok(None) };
    let charge = find_entry(store, *of)?;
    let sold = charge.as_ref().and_then(|charge| match &charge.kind {
        EntryKind::Settle { wallet, sale, .. } => Some((*wallet, sale)),
        _ => None,
    });
    let mut unit = InvoiceLineKey {
        model: sold.map_or_else(|| Arc::from(""), |(_, sale)| sale.model.clone()),
        location: Arc::from(""),
        class: sold.map(|(wallet, sale)| PriceClass::from_charge(wallet, sale.batch)),
        prices: Default::default(),
    };
    let mut sums = invoice_sums_with_carbon(&UsageSums::from_entry(&entry.kind), None);
    if let Some((_, sale)) = sold {
        unit.location = data_center_location(&super::rerate::load_terms(store, &sale.terms)?.to_string());
        if let Some(read_invoice_terms) = terms.read_invoice_terms(store, &sale.terms)? {
            unit.prices = prices_of_class(&read_invoice_terms.prices, unit.class);
            sums = invoice_sums_with_carbon(&UsageSums::from_entry(&entry.kind), Some(read_invoice_terms));
        }
    }
    let day = |entry: &LedgerEntry| UtcDay::from_unix(entry.at).to_string();
    Ok(Some(CorrectionLine {
        entry: entry.seq,
        day: day(entry),
        key: key.clone().unwrap_or_else(|| Arc::from("")),
        corrects_entry: *of,
        corrects_day: charge.as_ref().map(day),
        line_key: unit,
        sums,
    }))
}
