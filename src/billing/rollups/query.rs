//! Reads rollups of a period. All calls block.

use crate::billing::report::{MonthlyStatement, ReportError};
use crate::billing::rerate::load_terms;
use penstock_ledger::{Statement, UtcMonth};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    RollupCell, UsageHour, UsageReport, UsageSums, account_prefix, add_to_statement, decode, hour_key,
    hour_of_key,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of rows that one query reads.
pub const MAX_ROWS: usize = 500_000;

/// Calls `take` for each rollup of an account from the first hour up to the second, which is excluded. The empty account
/// is the whole gateway.
///
/// # Errors
/// Returns the error of `take`, or an error if the store cannot be read or the period has more than [`MAX_ROWS`] rows.
pub fn for_each_rollup(
    store: &LedgerStore,
    account: &str,
    (first, end): (UsageHour, UsageHour),
    mut take: impl FnMut(&RollupCell, &UsageSums) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let prefix = account_prefix(account);
    let mut after = hour_key(account, first);
    let mut count = 0;
    loop {
        let page = store.rollup_page(&prefix, Some(&after), penstock_storage::MAX_PAGE_ROWS)?;
        for row in &page.rows {
            let (cell, sums) = decode(&row.key, &row.value).map_err(|error| unreadable(&error))?;
            if cell.hour >= end {
                return Ok(());
            }
            count += 1;
            if count > MAX_ROWS {
                let message = format!("This period has more than {MAX_ROWS} usage rollups; ask for fewer days.");
                return Err(ReportError(message));
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
    ReportError(format!("The usage rollups cannot be read: {error}; `penstock usage rebuild` writes them again."))
}

/// Names of the accounts with rollups, in order.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn accounts(store: &LedgerStore) -> Result<Vec<Arc<str>>, ReportError> {
    let mut names = Vec::new();
    // Behind all rows of the whole gateway.
    let mut after = b"\x01".to_vec();
    loop {
        let page = store.rollup_page(b"", Some(&after), 1)?;
        let Some(row) = page.rows.first() else { return Ok(names) };
        let (account, _) = hour_of_key(&row.key).map_err(|error| unreadable(&error))?;
        after = [account.as_bytes(), b"\x01"].concat();
        names.push(account.into());
    }
}

/// Adds the rollups of an account and a period to a report.
///
/// # Errors
/// Returns the errors of [`for_each_rollup`], or an error if the report would have too many groups.
pub fn fill_report(
    store: &LedgerStore,
    account: &str,
    key: Option<&str>,
    hours: (UsageHour, UsageHour),
    report: &mut UsageReport,
) -> Result<(), ReportError> {
    for_each_rollup(store, account, hours, |cell, sums| {
        if key.is_none_or(|key| *cell.key == *key) {
            report.add(cell, sums).map_err(|error| ReportError(error.to_string()))?;
        }
        Ok(())
    })
}

/// Statement of a month from its rollups, for one account or all.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn monthly_statement(
    store: &LedgerStore,
    month: UtcMonth,
    account: Option<&str>,
) -> Result<MonthlyStatement, ReportError> {
    let hours = (UsageHour::from_unix(month.first_day().start()), UsageHour::from_unix(month.next().first_day().start()));
    let names = match account {
        Some(name) => vec![Arc::from(name)],
        None => accounts(store)?,
    };
    let mut statement = Statement::default();
    for name in names {
        for_each_rollup(store, &name, hours, |cell, sums| {
            add_to_statement(&mut statement, cell, sums);
            Ok(())
        })?;
    }
    let mut terms = BTreeMap::new();
    for id in statement.terms() {
        terms.insert(id.clone(), load_terms(store, id)?);
    }
    Ok(MonthlyStatement { month, statement, terms })
}
