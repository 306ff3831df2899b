//! Reads rollups of a period. All calls block.

use crate::billing::report::{MonthlyStatement, ReportError};
use crate::billing::rerate::load_terms;
use penstock_ledger::{Statement, UtcMonth};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    RollupDimensions, UsageHour, UsageSums, account_prefix, add_to_statement, decode, hour_key, split_row_key,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Calls `take` for each rollup of an account from the first hour up to the second, which is excluded. The empty
/// account is the whole gateway.
///
/// # Errors
/// Returns the error of `take`, or an error if the store cannot be read.
pub fn for_each_rollup<E: From<ReportError>>(
    store: &LedgerStore,
    account: &str,
    (first, end): (UsageHour, UsageHour),
    mut take: impl FnMut(&RollupDimensions, &UsageSums) -> Result<(), E>,
) -> Result<(), E> {
    let prefix = account_prefix(account);
    let mut after = hour_key(account, first);
    loop {
        let page = store.rollup_page(&prefix, Some(&after), penstock_storage::MAX_PAGE_ROWS);
        let page = page.map_err(ReportError::from)?;
        for row in &page.rows {
            let (cell, sums) = decode(&row.key, &row.value).map_err(|error| unreadable(&error))?;
            if cell.hour >= end {
                return Ok(());
            }
            take(&cell, &sums)?;
        }
        match page.rows.into_iter().next_back() {
            Some(last) if page.more => after = last.key,
            _ => return Ok(()),
        }
    }
}

fn unreadable(error: &penstock_usage::RowError) -> ReportError {
    ReportError(format!(
        "The usage rollups cannot be read: {error}; `penstock usage rebuild` writes them again."
    ))
}

/// Names of the accounts with rollups, in order.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn account_names(store: &LedgerStore) -> Result<Vec<Arc<str>>, ReportError> {
    let mut names = Vec::new();
    // Start after all rows of the whole gateway, which have the empty account.
    let mut after = b"\x01".to_vec();
    loop {
        let page = store.rollup_page(b"", Some(&after), 1)?;
        let Some(row) = page.rows.first() else { return Ok(names) };
        let (account, _) = split_row_key(&row.key).map_err(|error| unreadable(&error))?;
        after = [account.as_bytes(), b"\x01"].concat();
        names.push(account.into());
    }
}

/// Returns the statement of a month from its rollups, for one account, or for all accounts if `account` is `None`.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn monthly_statement(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    let hours = (
        UsageHour::from_unix(month.first_day().start()),
        UsageHour::from_unix(month.next().first_day().start()),
    );
    let names = match account {
        Some(name) => vec![Arc::from(name)],
        None => account_names(store)?,
    };
    let mut statement = Statement::default();
    for name in names {
        for_each_rollup(store, &name, hours, |cell, sums| {
            add_to_statement(&mut statement, cell, sums);
            Ok::<_, ReportError>(())
        })?;
    }
    let mut terms = BTreeMap::new();
    for id in statement.terms() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(MonthlyStatement { month, statement, terms })
}
