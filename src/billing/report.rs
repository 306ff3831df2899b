//! Reports from the ledger on the disk: single entries and statements. All calls block.

use super::entry_merge::{EntryMerge, chain_starts};
use super::rerate::load_terms;
use penstock_core::entry_number::sequence_of;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, Statement, UtcMonth, lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::LedgerStore;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use super::entry_pages::page_text;
pub use super::verification::{LedgerVerification, verify, verify_with};

/// Error of a report, as a sentence.
#[derive(Debug)]
pub struct ReportError(pub String);

impl From<StoreError> for ReportError {
    fn from(error: StoreError) -> Self {
        Self(format!("The ledger cannot be read: {error}."))
    }
}

/// Finds an entry by its number.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn find_entry(store: &LedgerStore, number: u64) -> Result<Option<LedgerEntry>, ReportError> {
    if sequence_of(number) == 0 {
        return Ok(None);
    }
    for month in store.months()? {
        let Some(block) = store.next_block(&month, number - 1)? else { continue };
        for line in lines(&block.text) {
            let entry = parse_entry(line)?;
            if entry.seq == number {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

pub(super) fn parse_entry(line: &[u8]) -> Result<LedgerEntry, ReportError> {
    let unreadable =
        |_| ReportError("An entry of the ledger cannot be read; `penstock credits verify` names it.".into());
    HashChain::parse_unverified(line).map(|(entry, _)| entry).map_err(unreadable)
}

/// Calls `take` for each entry of a month, in the order of time.
pub(super) fn for_each_entry(
    store: &LedgerStore,
    month: UtcMonth,
    mut take: impl FnMut(LedgerEntry) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let mut merge = EntryMerge::open(store, Some(&month.to_string()), &chain_starts(store)?)?;
    while let Some((entry, _)) = merge.next_entry()? {
        take(entry)?;
    }
    Ok(())
}

/// Returns the model of the charge that an entry corrects.
fn corrected_model(store: &LedgerStore, entry: &LedgerEntry) -> Result<Option<Arc<str>>, ReportError> {
    let EntryKind::Correct { of, .. } = &entry.kind else { return Ok(None) };
    Ok(find_entry(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(sale.model),
        _ => None,
    }))
}

/// Statement of a month, and the terms of its charges.
pub struct MonthlyStatement {
    /// Month of the statement.
    pub month: UtcMonth,
    /// Sums of the month.
    pub statement: Statement,
    /// Pricing terms of the charges, by their id.
    pub terms: BTreeMap<Arc<str>, Value>,
}

/// Computes the statement of a month for one account, or for all accounts if `account` is `None`. It is computed from
/// the rollups, or from the entries if the rollups are incomplete.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn monthly_statement(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    if store.has_complete_rollups()? {
        return super::rollups::query::monthly_statement(store, month, account);
    }
    statement_of_entries(store, month, account)
}

/// Computes the statement of a month from its entries, for one account, or for all accounts if `account` is `None`.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn statement_of_entries(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    let mut statement = Statement::default();
    for_each_entry(store, month, |entry| {
        if account.is_none_or(|name| *entry.account == *name) {
            statement.add_entry(&entry);
            if let Some(model) = corrected_model(store, &entry)? {
                statement.add_model_correction(&entry, &model);
            }
        }
        Ok(())
    })?;
    let mut terms = BTreeMap::new();
    for id in statement.terms() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(MonthlyStatement { month, statement, terms })
}
