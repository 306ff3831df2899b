//! Rebuild of the rollups from the ledger, and their comparison with it. All calls block.

use super::day_check::compare_days;
use super::days::build_days;
use super::hour_check::compare_hour;
use crate::billing::entry_merge::EntryMerge;
use crate::billing::report::{ReportError, find_entry};
use crate::billing::rerate::load_terms_text;
use crate::time::format::format_rfc3339;
use penstock_core::entry_number::{chain_of, number_before_chain};
use penstock_ledger::EntryKind;
use penstock_storage::ledger::{LedgerStore, LedgerTip};
use penstock_usage::{
    ChargeDimensions, HourNumber, RollupDimensions, UsageSums, data_center_location, day_from_row_key,
    day_watermark_key, encode_row_value, entry_rollup, parse_row_key, row_key,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of differences that a comparison lists.
const MAX_FINDINGS: usize = 100;
const DAY_SECONDS: u64 = 86_400;

/// Counts of a rebuild of the rollups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollupRebuildCounts {
    /// Number of entries read.
    pub entries: u64,
    /// Number of rollups written.
    pub rollups: u64,
}

/// Result of the comparison of the rollups with the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RollupCheck {
    /// Number of entries read.
    pub entries: u64,
    /// Number of compared rollups that result from the entries.
    pub rollups: u64,
    /// First hour that was left out with all later hours, because entries were written meanwhile; `None` if all hours
    /// were compared.
    pub left_out_from: Option<HourNumber>,
    /// Differences between the rollups in the store and the entries, at most 100.
    pub differences: Vec<String>,
}

impl RollupCheck {
    /// Returns true if the compared rollups are equal to the ledger.
    #[must_use]
    pub const fn is_intact(&self) -> bool {
        self.differences.is_empty()
    }

    /// Returns the result as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "good": self.is_intact(),
            "entries": self.entries,
            "rollups": self.rollups,
            "left_out_from": self.left_out_from.map(|hour| format_rfc3339(hour.start())),
            "differences": self.differences,
        })
    }

    pub(super) fn add_difference(&mut self, text: String) {
        if self.differences.len() < MAX_FINDINGS {
            self.differences.push(text);
        }
    }
}

/// Rollups of one hour by row key.
pub(super) type HourCells = BTreeMap<Vec<u8>, (RollupDimensions, UsageSums)>;

/// Returns the work of the charge that an entry corrects; `None` if it corrects none.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn work_of_corrected_charge(
    store: &LedgerStore,
    kind: &EntryKind,
) -> Result<Option<ChargeDimensions>, ReportError> {
    let EntryKind::Correct { of, .. } = kind else { return Ok(None) };
    Ok(find_entry(store, *of)?.and_then(|found| match found.kind {
        EntryKind::Settle { sale, .. } => Some(ChargeDimensions::from(&*sale)),
        _ => None,
    }))
}

/// Adds up the entries up to the given tips, and passes the rollups of each hour to `take`. Entries are in the order of
/// time, so only one hour is in memory. Returns the number of entries.
fn for_each_hour(
    store: &LedgerStore,
    tips: &[(u32, LedgerTip)],
    mut take: impl FnMut(HourNumber, HourCells) -> Result<(), ReportError>,
) -> Result<u64, ReportError> {
    let ends: HashMap<u32, u64> = tips.iter().map(|(chain, tip)| (*chain, tip.seq)).collect();
    let starts: Vec<u64> = tips.iter().map(|(chain, _)| number_before_chain(*chain)).collect();
    let mut locations: HashMap<Arc<str>, Arc<str>> = HashMap::new();
    let (mut hour, mut cells, mut entries) = (HourNumber::default(), HourCells::new(), 0);
    let mut merge = EntryMerge::open(store, None, &starts)?;
    while let Some((entry, _)) = merge.next_entry()? {
        if ends.get(&chain_of(entry.seq)).is_none_or(|end| entry.seq > *end) {
            continue;
        }
        entries += 1;
        if let EntryKind::Terms { id, terms } = &entry.kind {
            locations.insert(id.clone(), data_center_location(terms));
        }
        let corrected = work_of_corrected_charge(store, &entry.kind)?;
        learn_location(store, &entry.kind, corrected.as_ref(), &mut locations)?;
        let location = |terms: &Arc<str>| locations.get(terms).cloned().unwrap_or_else(|| Arc::from(""));
        let Some((cell, sums)) = entry_rollup(&entry, corrected.as_ref(), location) else { continue };
        if cell.hour != hour {
            take(hour, std::mem::take(&mut cells))?;
            hour = cell.hour;
        }
        for cell in [cell.to_gateway_wide(), cell] {
            cells.entry(row_key(&cell)).or_insert_with(|| (cell, UsageSums::default())).1.add(&sums);
        }
    }
    take(hour, cells)?;
    Ok(entries)
}

/// Records the location of the terms that an entry refers to. Another chain may record the terms with a later time than
/// their first charge, so they are looked up.
fn learn_location(
    store: &LedgerStore,
    kind: &EntryKind,
    corrected: Option<&ChargeDimensions>,
    locations: &mut HashMap<Arc<str>, Arc<str>>,
) -> Result<(), ReportError> {
    let terms = match kind {
        EntryKind::Settle { sale, .. } => Some(&sale.terms),
        _ => corrected.map(|work| &work.terms),
    };
    let Some(id) = terms.filter(|id| !locations.contains_key(*id)) else { return Ok(()) };
    let location = match store.entry_number_by_name(&format!("terms {id}"))? {
        Some(_) => data_center_location(&load_terms_text(store, id)?),
        None => Arc::from(""),
    };
    locations.insert(id.clone(), location);
    Ok(())
}

/// Writes all rollups again from the ledger. No other process or thread may write to the ledger.
///
/// # Errors
/// Returns an error if the store cannot be read or written. After an incomplete rebuild, the rollups are marked as
/// incomplete, and the next start of a gateway without a fleet repeats the rebuild.
pub fn rebuild(store: &LedgerStore) -> Result<RollupRebuildCounts, ReportError> {
    let tips = store.clear_rollups()?;
    if tips.is_empty() {
        return Ok(RollupRebuildCounts::default());
    }
    let mut done = RollupRebuildCounts::default();
    done.entries = for_each_hour(store, &tips, |_, cells| {
        done.rollups += cells.len() as u64;
        let rows: Vec<_> =
            cells.into_iter().map(|(key, (cell, sums))| (key, encode_row_value(&cell, &sums))).collect();
        Ok(store.write_rollups(&rows)?)
    })?;
    store.mark_rollups_complete(&tips)?;
    let newest = tips.iter().map(|(_, tip)| tip.at).max().unwrap_or_default();
    build_days(store, newest, "rebuild".to_owned())?;
    Ok(done)
}

/// Compares all rollups with the ledger. If the ledger is written to meanwhile, the hours to which an entry may still
/// be added are left out.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn verify(store: &LedgerStore) -> Result<RollupCheck, ReportError> {
    verify_up_to(store, &store.chains()?)
}

/// Compares the rollups with the entries up to the given tips, which were read before.
pub(in crate::billing) fn verify_up_to(
    store: &LedgerStore,
    tips: &[(u32, LedgerTip)],
) -> Result<RollupCheck, ReportError> {
    let mut check = RollupCheck::default();
    if tips.iter().any(|(_, tip)| !tip.are_rollups_complete) {
        check.add_difference("the rollups are incomplete".to_owned());
        return Ok(check);
    }
    let (current, mut late_check) = (first_open_hour(tips), RollupCheck::default());
    check.entries = for_each_hour(store, tips, |hour, cells| {
        let check = if hour < current { &mut check } else { &mut late_check };
        compare_hour(store, &cells, check)
    })?;
    let (before, within) = count_rows(store, current)?;
    let (mut expected, mut found) = (check.rollups, before);
    if store.chains()? != tips {
        check.left_out_from = Some(current);
    } else {
        expected += late_check.rollups;
        found += within;
        check.rollups += late_check.rollups;
        late_check.differences.into_iter().for_each(|text| check.add_difference(text));
    }
    compare_days(store)?.into_iter().for_each(|text| check.add_difference(text));
    if found != expected {
        check.add_difference(format!("the store has {found} rollups, the ledger adds up to {expected}"));
    }
    Ok(check)
}

/// Returns the first hour to which an entry may still be added: the earliest of the hours of the last entries of all
/// chains in use. A chain is not in use if its last entry is a day older than that of another chain.
fn first_open_hour(tips: &[(u32, LedgerTip)]) -> HourNumber {
    let newest = tips.iter().map(|(_, tip)| tip.at).max().unwrap_or(0);
    let in_use = tips.iter().map(|(_, tip)| tip.at).filter(|at| at + DAY_SECONDS > newest);
    HourNumber::from_unix(in_use.min().unwrap_or(0))
}

/// Returns the number of hour rollups before an hour, and the number of hour rollups from that hour on.
fn count_rows(store: &LedgerStore, hour: HourNumber) -> Result<(u64, u64), ReportError> {
    let (mut before, mut within) = (0, 0);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.rollup_page(b"", after.as_deref(), penstock_storage::MAX_PAGE_ROWS)?;
        for row in &page.rows {
            if is_row_of_days(&row.key) {
                continue;
            }
            match parse_row_key(&row.key).map(|(_, of)| of.cmp(&hour)) {
                Ok(std::cmp::Ordering::Equal | std::cmp::Ordering::Greater) => within += 1,
                Ok(std::cmp::Ordering::Less) | Err(_) => before += 1,
            }
        }
        match page.rows.into_iter().next_back() {
            Some(last) if page.more => after = Some(last.key),
            _ => return Ok((before, within)),
        }
    }
}

/// Returns true if a row is a day rollup, or the watermark of complete days.
fn is_row_of_days(key: &[u8]) -> bool {
    matches!(day_from_row_key(key), Ok(Some(_))) || key == day_watermark_key()
}
