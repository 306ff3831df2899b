//! Export of the ledger's entries of a period, for an accountant's own programs. All calls block.

use super::entry_merge::{EntryMerge, chain_starts};
use super::report::ReportError;
use penstock_core::calendar::UtcMonth;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::UsageRange;
use serde_json::Value;

/// Maximum number of entries of one page.
pub const PAGE_ENTRIES: usize = 5_000;
/// Names of entries that move no amount: they are part of the chain, and not of an export.
const OMITTED: [&str; 2] = ["terms", "reserve"];

/// Page of an export.
pub struct LedgerPage {
    /// Entries as JSON objects, in the order of time.
    pub entries: Vec<Value>,
    /// Number of the last entry of the page, if there are more.
    pub next: Option<u64>,
}

/// Reads the entries of a period: charges, ends without a charge, grants and corrections; of one account, or of all.
/// `after` is the number of the last entry of the page before.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn entries_of_period(
    store: &LedgerStore,
    range: UsageRange,
    account: Option<&str>,
    after: Option<u64>,
) -> Result<LedgerPage, ReportError> {
    let (start, end) = (range.from.start(), range.to.next().start());
    let starts = chain_starts(store)?;
    let (mut entries, mut last, mut is_behind) = (Vec::new(), None, after.is_none());
    let mut month = UtcMonth::from_unix(start);
    while month.first_day().start() < end {
        let mut merge = EntryMerge::open(store, Some(&month.to_string()), &starts)?;
        while let Some((entry, line)) = merge.next_entry()? {
            let is_wanted = is_behind
                && (start..end).contains(&entry.at)
                && !OMITTED.contains(&entry.kind.name())
                && account.is_none_or(|account| *entry.account == *account);
            is_behind |= after == Some(entry.seq);
            if !is_wanted {
                continue;
            }
            if entries.len() >= PAGE_ENTRIES {
                return Ok(LedgerPage { entries, next: last });
            }
            let unreadable = |_| ReportError("An entry of the ledger is not JSON.".to_owned());
            entries.push(serde_json::from_slice(line).map_err(unreadable)?);
            last = Some(entry.seq);
        }
        month = month.next();
    }
    Ok(LedgerPage { entries, next: None })
}
