//! Comparison of the day rollups of complete days with the hour rollups of these days. All calls block.

use super::days::first_incomplete_day;
use super::query::{account_names, for_each_summed_day};
use crate::billing::report::ReportError;
use penstock_core::calendar::UtcDay;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{DayNumber, RollupDimensions, UsageSums, day_from_row_key, decode_day_row};

/// Returns the differences between the day rollups of complete days and the sums of their hour rollups. Days to which
/// entries are added meanwhile are left out.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub(super) fn compare_days(store: &LedgerStore) -> Result<Vec<String>, ReportError> {
    let until = first_incomplete_day(store)?;
    let (mut differences, mut expected) = (Vec::new(), 0_u64);
    let mut names = account_names(store)?;
    names.push("".into());
    for name in names {
        for_each_summed_day(store, &name, (DayNumber::default(), until), |day| {
            for (key, cell, sums) in day.keyed_rollups() {
                expected += 1;
                if let Some(why) = difference(store, &key, (cell, sums))? {
                    differences.push((DayNumber::from_hour(cell.hour), why));
                }
            }
            Ok::<_, ReportError>(())
        })?;
    }
    let found = count_rows(store, until)?;
    let still_until = first_incomplete_day(store)?;
    let mut texts: Vec<String> = differences
        .into_iter()
        .filter(|(day, _)| *day < still_until)
        .map(|(day, why)| format!("{}, {why}", UtcDay::from_unix(day.first_hour().start())))
        .collect();
    if found != expected && still_until == until {
        texts.push(format!("the store has {found} rollups of days, the hours add up to {expected}"));
    }
    Ok(texts)
}

/// Returns the difference between a stored day rollup and the sums of its hours; `None` if they are equal.
fn difference(
    store: &LedgerStore,
    key: &[u8],
    (cell, sums): (&RollupDimensions, &UsageSums),
) -> Result<Option<String>, ReportError> {
    let why = match store.rollup(key)?.map(|value| decode_day_row(key, &value)) {
        Some(Ok((found_cell, found))) if found_cell == *cell && found == *sums => return Ok(None),
        Some(Ok(_)) => "other sums than its hours",
        Some(Err(_)) => "unreadable",
        None => "missing",
    };
    let account = if cell.account.is_empty() { "the gateway" } else { &*cell.account };
    Ok(Some(format!("day of {account}, {} {}: {why}", cell.outcome, cell.model)))
}

/// Returns the number of day rollups of the days before `until`.
fn count_rows(store: &LedgerStore, until: DayNumber) -> Result<u64, ReportError> {
    let (mut count, mut after) = (0, None::<Vec<u8>>);
    loop {
        let page = store.rollup_page(b"", after.as_deref(), penstock_storage::MAX_PAGE_ROWS)?;
        let is_counted = |key: &[u8]| matches!(day_from_row_key(key), Ok(Some(day)) if day < until);
        count += page.rows.iter().filter(|row| is_counted(&row.key)).count() as u64;
        match page.rows.into_iter().next_back() {
            Some(last) if page.more => after = Some(last.key),
            _ => return Ok(count),
        }
    }
}
