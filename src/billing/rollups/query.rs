//! Reads rollups of a period. All calls block.

use super::days::first_incomplete_day;
use crate::billing::report::{ReportError, StatementPeriod, UsageStatement};
use crate::billing::rerate::load_terms;
use penstock_ledger::Statement;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    DayNumber, DayRollups, HourNumber, RollupDimensions, RowError, UsageSums, account_key_prefix,
    add_to_statement, day_from_row_key, day_key_prefix, decode_day_row, decode_row, hour_key_prefix,
    parse_row_key,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Calls `take` for each hour rollup of an account from the first hour of `hours` up to, but not including, the second
/// hour of the pair. An empty `account` selects the rollups of the whole gateway.
///
/// # Errors
/// Returns the error of `take`, or an error if the store cannot be read.
pub fn for_each_hour_rollup<E: From<ReportError>>(
    store: &LedgerStore,
    account: &str,
    hours: (HourNumber, HourNumber),
    mut take: impl FnMut(&RollupDimensions, &UsageSums) -> Result<(), E>,
) -> Result<(), E> {
    for_each_hour_row(store, account, hours, |_, cell, sums| take(cell, sums))
}

/// Calls `take` like [`for_each_hour_rollup`], also with the key of the row.
fn for_each_hour_row<E: From<ReportError>>(
    store: &LedgerStore,
    account: &str,
    (first, end): (HourNumber, HourNumber),
    mut take: impl FnMut(&[u8], &RollupDimensions, &UsageSums) -> Result<(), E>,
) -> Result<(), E> {
    if first >= end {
        return Ok(());
    }
    for_each_row(store, account, hour_key_prefix(account, first), |key, value| {
        let (_, hour) = parse_row_key(key).map_err(unreadable_row_error)?;
        if hour >= end {
            return Ok(false);
        }
        let (cell, sums) = decode_row(key, value).map_err(unreadable_row_error)?;
        take(key, &cell, &sums).map(|()| true)
    })
}

/// Calls `take` with key and value of each row of an account after the key `after`, until `take` returns false.
fn for_each_row<E: From<ReportError>>(
    store: &LedgerStore,
    account: &str,
    mut after: Vec<u8>,
    mut take: impl FnMut(&[u8], &[u8]) -> Result<bool, E>,
) -> Result<(), E> {
    let prefix = account_key_prefix(account);
    loop {
        let page = store.rollup_page(&prefix, Some(&after), penstock_storage::MAX_PAGE_ROWS);
        let page = page.map_err(ReportError::from)?;
        for row in &page.rows {
            if !take(&row.key, &row.value)? {
                return Ok(());
            }
        }
        match page.rows.into_iter().next_back() {
            Some(last) if page.more => after = last.key,
            _ => return Ok(()),
        }
    }
}

/// Reader of day rollups: those in the store for complete days, and sums of hour rollups for all other days. The
/// figures are the same.
pub struct DayReader<'s> {
    store: &'s LedgerStore,
    /// First day that is added up from its hours.
    complete_until: DayNumber,
}

impl<'s> DayReader<'s> {
    /// Creates a reader for the days that are complete now.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn open(store: &'s LedgerStore) -> Result<Self, ReportError> {
        Ok(Self { store, complete_until: first_incomplete_day(store)? })
    }

    /// Calls `take` for each day rollup of an account from day `first` up to, but not including, day `end`. An empty
    /// `account` selects the rollups of the whole gateway. [`RollupDimensions::hour`] is the first hour of the day.
    ///
    /// # Errors
    /// Returns the error of `take`, or an error if the store cannot be read.
    pub fn for_each<E: From<ReportError>>(
        &self,
        account: &str,
        (first, end): (DayNumber, DayNumber),
        mut take: impl FnMut(&RollupDimensions, &UsageSums) -> Result<(), E>,
    ) -> Result<(), E> {
        let split = self.complete_until.clamp(first, end.max(first));
        if first < split {
            for_each_row(self.store, account, day_key_prefix(account, first), |key, value| {
                if day_from_row_key(key).map_err(unreadable_row_error)?.is_none_or(|day| day >= split) {
                    return Ok(false);
                }
                let (cell, sums) = decode_day_row(key, value).map_err(unreadable_row_error)?;
                take(&cell, &sums).map(|()| true)
            })?;
        }
        for_each_summed_day(self.store, account, (split, end), |day| {
            day.rollups().try_for_each(|(cell, sums)| take(cell, sums))
        })
    }
}

/// Adds up the hour rollups of each day, and calls `take` for each day that has some. `take` is also called with a day
/// without rollups: before the first such day, or once if there is none.
///
/// # Errors
/// Returns the error of `take`, or an error if the store cannot be read.
pub(super) fn for_each_summed_day<E: From<ReportError>>(
    store: &LedgerStore,
    account: &str,
    (first, end): (DayNumber, DayNumber),
    mut take: impl FnMut(&DayRollups) -> Result<(), E>,
) -> Result<(), E> {
    let mut day = DayRollups::default();
    for_each_hour_row(store, account, (first.first_hour(), end.first_hour()), |key, cell, sums| {
        match day.add_hour_rollup(key, cell, sums).map_err(unreadable_row_error)? {
            Some(earlier) => take(&earlier),
            None => Ok(()),
        }
    })?;
    take(&day)
}

/// Returns the error of a row that cannot be read.
pub(super) fn unreadable_row_error(error: RowError) -> ReportError {
    ReportError::Invalid(format!(
        "The usage rollups cannot be read: {error}; `penstock usage rebuild` writes them again."
    ))
}

/// Returns the names of the accounts with rollups, in order.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn account_names(store: &LedgerStore) -> Result<Vec<Arc<str>>, ReportError> {
    let mut names = Vec::new();
    // Starts after the rows of the whole gateway, whose account name is empty.
    let mut after = b"\x01".to_vec();
    loop {
        let page = store.rollup_page(b"", Some(&after), 1)?;
        let Some(row) = page.rows.first() else { return Ok(names) };
        let (account, _) = parse_row_key(&row.key).map_err(unreadable_row_error)?;
        after = [account.as_bytes(), b"\x01"].concat();
        names.push(account.into());
    }
}

/// Returns the statement of a period from its rollups, for one account, or for all accounts if `account` is `None`.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn statement(
    store: &LedgerStore,
    period: StatementPeriod,
    account: Option<&str>,
) -> Result<UsageStatement, ReportError> {
    let days = (period.from.into(), DayNumber::from(period.to).next());
    let names = match account {
        Some(name) => vec![Arc::from(name)],
        None => account_names(store)?,
    };
    let (reader, mut statement) = (DayReader::open(store)?, Statement::default());
    for name in names {
        reader.for_each(&name, days, |cell, sums| {
            add_to_statement(&mut statement, cell, sums);
            Ok::<_, ReportError>(())
        })?;
    }
    let mut terms = BTreeMap::new();
    for id in statement.pricing_terms_ids() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(UsageStatement { period, statement, terms })
}
