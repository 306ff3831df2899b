//! Comparison of the hour rollups with the ledger. All calls block.

use super::rebuild::{HourCells, RollupCheck};
use crate::billing::report::ReportError;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{PriceClass, RollupDimensions, UsageSums, decode_row, row_key};
use std::collections::BTreeMap;

/// Rollups that differ only in the class of their price, with their row keys.
type ClassCells<'c> = Vec<(&'c [u8], &'c RollupDimensions, &'c UsageSums)>;

/// Compares the rollups of an hour with the rows in the store.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub(super) fn compare_hour(
    store: &LedgerStore,
    cells: &HourCells,
    check: &mut RollupCheck,
) -> Result<(), ReportError> {
    let mut groups: BTreeMap<RollupDimensions, ClassCells<'_>> = BTreeMap::new();
    for (key, (cell, sums)) in cells {
        let group = RollupDimensions { price: PriceClass::default(), ..cell.clone() };
        groups.entry(group).or_default().push((key, cell, sums));
    }
    for (group, cells) in groups {
        let mut differences = Vec::new();
        for (key, cell, sums) in &cells {
            differences.extend(difference(store, key, (cell, sums))?);
        }
        let same_total = if differences.is_empty() { None } else { rows_of_total(store, &group, &cells)? };
        if let Some(rows) = same_total {
            check.rollups += rows;
            continue;
        }
        check.rollups += cells.len() as u64;
        differences.into_iter().for_each(|text| check.add_difference(text));
    }
    Ok(())
}

/// Returns the difference between a row and the sums of its entries; `None` if they are equal.
fn difference(
    store: &LedgerStore,
    key: &[u8],
    (cell, sums): (&RollupDimensions, &UsageSums),
) -> Result<Option<String>, ReportError> {
    let why = match store.rollup(key)?.map(|value| decode_row(key, &value)) {
        Some(Ok((_, found))) if is_equal(&found, sums) => return Ok(None),
        Some(Ok(_)) => "other sums than the entries",
        Some(Err(_)) => "unreadable",
        None => "missing",
    };
    let account = if cell.account.is_empty() { "the gateway" } else { &*cell.account };
    let at = crate::time::format::format_rfc3339(cell.hour.start());
    Ok(Some(format!("{account}, {at}, {} {}: {why}", cell.outcome, cell.model)))
}

/// Returns the number of rows that add up to the sums of all classes; `None` if they do not. An earlier version counts
/// the requests of all classes in the first one.
fn rows_of_total(
    store: &LedgerStore,
    group: &RollupDimensions,
    cells: &ClassCells<'_>,
) -> Result<Option<u64>, ReportError> {
    let (mut found, mut expected, mut rows) = (UsageSums::default(), UsageSums::default(), 0);
    cells.iter().for_each(|(_, _, sums)| expected.add(sums));
    for price in PriceClass::ALL {
        let key = row_key(&RollupDimensions { price, ..group.clone() });
        let Some(value) = store.rollup(&key)? else { continue };
        let Ok((_, sums)) = decode_row(&key, &value) else { return Ok(None) };
        found.add(&sums);
        rows += 1;
        let requests = |of: &UsageSums| of.billed.requests;
        let of_class =
            cells.iter().find(|(_, cell, _)| cell.price == price).map_or(0, |(_, _, sums)| requests(sums));
        if price != PriceClass::default() && requests(&sums) > of_class {
            return Ok(None);
        }
    }
    Ok(is_equal(&found, &expected).then_some(rows))
}

/// Returns true if stored sums are those of the entries. Fewer batch requests are no difference, because an earlier
/// version did not count them.
fn is_equal(stored: &UsageSums, expected: &UsageSums) -> bool {
    stored.batch_requests <= expected.batch_requests
        && UsageSums { batch_requests: expected.batch_requests, ..stored.clone() } == *expected
}
