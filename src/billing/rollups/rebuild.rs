//! Rebuild of the rollups from the ledger, and their comparison with it. All calls block.

use crate::billing::report::{ReportError, find};
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, lines};
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    RollupCell, SoldWork, UsageHour, UsageSums, decode, encode, hour_of_key, location_of, rollup_of, row_key,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 100;

/// Result of a rebuild or of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupCheck {
    /// Number of entries read.
    pub entries: u64,
    /// Number of rollups that the entries add up to.
    pub rollups: u64,
    /// Differences between the rollups in the store and the entries.
    pub differences: Vec<String>,
}

impl RollupCheck {
    /// Returns true if the rollups are equal to the ledger.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.differences.is_empty()
    }

    /// JSON form of the result.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "good": self.is_intact(),
            "entries": self.entries,
            "rollups": self.rollups,
            "differences": self.differences,
        })
    }

    fn add_difference(&mut self, text: String) {
        if self.differences.len() < MAX_FINDINGS {
            self.differences.push(text);
        }
    }
}

/// Cells of one hour by row key.
type HourCells = BTreeMap<Vec<u8>, (RollupCell, UsageSums)>;

/// Work of a charge that an entry corrects.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn corrected_work(store: &LedgerStore, kind: &EntryKind) -> Result<Option<SoldWork>, ReportError> {
    let EntryKind::Correct { of, .. } = kind else { return Ok(None) };
    Ok(find(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(SoldWork::from(&*sale)),
        _ => None,
    }))
}

/// Adds up the entries up to number `last`, and passes the cells of each hour to `take`. Entries are in the order of
/// time, so only one hour is in memory. Returns the number of entries.
fn for_each_hour(
    store: &LedgerStore,
    last: u64,
    mut take: impl FnMut(UsageHour, HourCells) -> Result<(), ReportError>,
) -> Result<u64, ReportError> {
    let mut locations: HashMap<Arc<str>, Arc<str>> = HashMap::new();
    let (mut hour, mut cells, mut entries) = (UsageHour::default(), HourCells::new(), 0);
    let mut add = |entry: LedgerEntry| {
        if entry.seq > last {
            return Ok(());
        }
        entries = entry.seq;
        if let EntryKind::Terms { id, terms } = &entry.kind {
            locations.insert(id.clone(), location_of(terms));
        }
        let corrected = corrected_work(store, &entry.kind)?;
        let location = |terms: &Arc<str>| locations.get(terms).cloned().unwrap_or_else(|| Arc::from(""));
        let Some((cell, sums)) = rollup_of(&entry, corrected.as_ref(), location) else { return Ok(()) };
        if cell.hour != hour {
            take(hour, std::mem::take(&mut cells))?;
            hour = cell.hour;
        }
        for cell in [cell.gateway(), cell] {
            cells.entry(row_key(&cell)).or_insert_with(|| (cell, UsageSums::default())).1.add(&sums);
        }
        Ok::<_, ReportError>(())
    };
    store.for_each_block(0, |block| {
        for line in lines(&block.text) {
            let (entry, _) = HashChain::parse_unverified(line).map_err(|_| {
                ReportError(
                    "An entry of the ledger cannot be read; `penstock credits verify` names it.".into(),
                )
            })?;
            add(entry)?;
        }
        Ok::<_, ReportError>(())
    })?;
    take(hour, cells)?;
    Ok(entries)
}

/// Writes all rollups again from the ledger. No other process or thread may write to the ledger.
///
/// # Errors
/// Returns an error if the store cannot be read or written. After an incomplete rebuild the rollups are marked as
/// incomplete, and the next start of the gateway repeats it.
pub fn rebuild(store: &LedgerStore) -> Result<RollupCheck, ReportError> {
    let Some(tip) = store.clear_rollups()? else { return Ok(RollupCheck::default()) };
    let mut done = RollupCheck::default();
    done.entries = for_each_hour(store, tip.seq, |_, cells| {
        done.rollups += cells.len() as u64;
        let rows: Vec<_> = cells.into_iter().map(|(key, (cell, sums))| (key, encode(&cell, &sums))).collect();
        Ok(store.write_rollups(&rows)?)
    })?;
    store.complete_rollups(tip)?;
    Ok(done)
}

/// Compares all rollups with the ledger. While the ledger is written to, the hour of its last entry is left out.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn verify(store: &LedgerStore) -> Result<RollupCheck, ReportError> {
    let mut check = RollupCheck::default();
    let Some(tip) = store.tip()? else { return Ok(check) };
    if !tip.rollups {
        check.add_difference("the rollups are incomplete".to_owned());
        return Ok(check);
    }
    let current = UsageHour::from_unix(tip.at);
    let mut last_hour = HourCells::new();
    check.entries = for_each_hour(store, tip.seq, |hour, cells| {
        if hour == current {
            last_hour = cells;
            return Ok(());
        }
        compare_hour(store, &cells, &mut check)
    })?;
    // The last hour is compared if no entry came meanwhile.
    let mut last_check = RollupCheck::default();
    compare_hour(store, &last_hour, &mut last_check)?;
    let rows = count_rows(store, current)?;
    let stable = store.tip()? == Some(tip);
    let mut expected = check.rollups;
    if stable {
        expected += last_check.rollups;
        check.rollups += last_check.rollups;
        last_check.differences.into_iter().for_each(|text| check.add_difference(text));
    }
    let found = if stable { rows.0 + rows.1 } else { rows.0 };
    if found != expected {
        check.add_difference(format!("the store has {found} rollups, the ledger adds up to {expected}"));
    }
    Ok(check)
}

fn compare_hour(store: &LedgerStore, cells: &HourCells, check: &mut RollupCheck) -> Result<(), ReportError> {
    for (key, (cell, sums)) in cells {
        check.rollups += 1;
        let stored = store.rollup(key)?.map(|value| decode(key, &value));
        let name = || {
            let account = if cell.account.is_empty() { "the gateway" } else { &*cell.account };
            let at = crate::time::format::format_rfc3339(cell.hour.start());
            format!("{account}, {at}, {} {}", cell.outcome, cell.model)
        };
        match stored {
            Some(Ok((_, found))) if found == *sums => {}
            Some(Ok(_)) => check.add_difference(format!("{}: other sums than the entries", name())),
            Some(Err(_)) => check.add_difference(format!("{}: unreadable", name())),
            None => check.add_difference(format!("{}: missing", name())),
        }
    }
    Ok(())
}

/// Number of rows before an hour, and in it.
fn count_rows(store: &LedgerStore, hour: UsageHour) -> Result<(u64, u64), ReportError> {
    let (mut before, mut within) = (0, 0);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.rollup_page(b"", after.as_deref(), penstock_storage::MAX_PAGE_ROWS)?;
        for row in &page.rows {
            match hour_of_key(&row.key).map(|(_, of)| of.cmp(&hour)) {
                Ok(std::cmp::Ordering::Equal) => within += 1,
                Ok(std::cmp::Ordering::Greater) => {}
                Ok(std::cmp::Ordering::Less) | Err(_) => before += 1,
            }
        }
        match page.rows.into_iter().next_back() {
            Some(last) if page.more => after = Some(last.key),
            _ => return Ok((before, within)),
        }
    }
}
