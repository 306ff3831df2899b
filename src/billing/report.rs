//! Reports from the ledger on the disk: single entries and statements. All calls block.

use super::entry_merge::{EntryMerge, chain_start_positions};
use super::rerate::load_terms;
use penstock_core::entry_number::sequence_in_chain;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, Statement, UtcDay, UtcMonth, split_lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::LedgerStore;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

pub use super::entry_pages::read_text_page;
pub use super::verification::{LedgerVerification, verify, verify_with_checkpoint};

/// Error of a report. It is displayed as a sentence.
#[derive(Debug)]
pub enum ReportError {
    /// Contents of the ledger that cannot be used; contains a sentence.
    Invalid(String),
    /// Failure of the store.
    Store(StoreError),
}

impl From<StoreError> for ReportError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Display for ReportError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(sentence) => f.write_str(sentence),
            Self::Store(error) => write!(f, "The ledger cannot be read: {error}."),
        }
    }
}

/// Finds an entry by its number.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn find_entry(store: &LedgerStore, number: u64) -> Result<Option<LedgerEntry>, ReportError> {
    if sequence_in_chain(number) == 0 {
        return Ok(None);
    }
    for month in store.months()? {
        let Some(block) = store.next_block(&month, number - 1)? else { continue };
        for line in split_lines(&block.text) {
            let entry = parse_entry(line)?;
            if entry.seq == number {
                return Ok(Some(entry));
            }
        }
    }
    Ok(None)
}

/// Parses a line of the ledger without verifying its hash.
pub(super) fn parse_entry(line: &[u8]) -> Result<LedgerEntry, ReportError> {
    let unreadable = |_| {
        ReportError::Invalid(
            "An entry of the ledger cannot be read; `penstock credits verify` names it.".into(),
        )
    };
    HashChain::parse_unverified(line).map(|(entry, _)| entry).map_err(unreadable)
}

/// Calls `take` for each entry of a month, in the order of time.
pub(super) fn for_each_entry(
    store: &LedgerStore,
    month: UtcMonth,
    mut take: impl FnMut(LedgerEntry) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let mut merge = EntryMerge::open(store, Some(&month.to_string()), &chain_start_positions(store)?)?;
    while let Some((entry, _)) = merge.next_entry()? {
        take(entry)?;
    }
    Ok(())
}

/// Returns the model of the charge that an entry corrects; `None` if it corrects none.
fn corrected_model(store: &LedgerStore, entry: &LedgerEntry) -> Result<Option<Arc<str>>, ReportError> {
    let EntryKind::Correct { of, .. } = &entry.kind else { return Ok(None) };
    Ok(find_entry(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(sale.model),
        _ => None,
    }))
}

/// Days of a statement, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementPeriod {
    /// First day.
    pub from: UtcDay,
    /// Last day.
    pub to: UtcDay,
}

impl StatementPeriod {
    /// Returns the period of a month.
    #[must_use]
    pub fn of_month(month: UtcMonth) -> Self {
        Self { from: month.first_day(), to: month.last_day() }
    }

    /// Returns the month if the period is exactly one month; otherwise `None`.
    #[must_use]
    pub fn month(self) -> Option<UtcMonth> {
        let month = UtcMonth::from_unix(self.from.start());
        (self == Self::of_month(month)).then_some(month)
    }

    /// Returns the months that have days of the period.
    fn months(self) -> impl Iterator<Item = UtcMonth> {
        let first = UtcMonth::from_unix(self.from.start());
        let last = UtcMonth::from_unix(self.to.start());
        first.iter_from().take_while(move |month| *month <= last)
    }
}

/// Statement of a period, and the terms of its charges.
pub struct UsageStatement {
    /// Days of the statement.
    pub period: StatementPeriod,
    /// Sums of the period.
    pub statement: Statement,
    /// Pricing terms of the charges, by their id.
    pub terms: BTreeMap<Arc<str>, Value>,
}

/// Computes the statement of a period for one account, or for all accounts if `account` is `None`. It is computed from
/// the rollups, or from the entries if the rollups are incomplete.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn statement(
    store: &LedgerStore,
    period: StatementPeriod,
    account: Option<&str>,
) -> Result<UsageStatement, ReportError> {
    if store.has_complete_rollups()? {
        return super::rollups::query::statement(store, period, account);
    }
    statement_of_entries(store, period, account)
}

/// Computes the statement of a period from its entries, for one account, or for all accounts if `account` is `None`.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn statement_of_entries(
    store: &LedgerStore,
    period: StatementPeriod,
    account: Option<&str>,
) -> Result<UsageStatement, ReportError> {
    let mut statement = Statement::default();
    let (start, end) = (period.from.start(), period.to.end());
    for month in period.months() {
        for_each_entry(store, month, |entry| {
            let is_wanted = account.is_none_or(|name| *entry.account == *name);
            if is_wanted && start <= entry.at && entry.at < end {
                statement.add_entry(&entry);
                if let Some(model) = corrected_model(store, &entry)? {
                    statement.add_model_correction(&entry, &model);
                }
            }
            Ok(())
        })?;
    }
    let mut terms = BTreeMap::new();
    for id in statement.pricing_terms_ids() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(UsageStatement { period, statement, terms })
}
