//! Export of the ledger's entries of a period, for an accountant's own programs. All calls block.

use super::entry_merge::{EntryMerge, chain_starts};
use super::report::{ReportError, find_entry, parse_entry};
use penstock_core::calendar::UtcMonth;
use penstock_core::entry_number::chain_start;
use penstock_ledger::split_lines;
use penstock_storage::ledger::{LedgerStore, LedgerTip};
use penstock_usage::UsageRange;
use serde_json::Value;

/// Maximum numbers of entries of one page.
const LIMITS: PageLimits = PageLimits { returned: 5_000, read: 100_000 };
/// Names of entries that move no amount: they are part of the chain, and not of an export.
const OMITTED: [&str; 2] = ["terms", "reserve"];

/// Limits of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLimits {
    /// Maximum number of entries that are returned.
    pub returned: usize,
    /// Maximum number of entries that are read, at least 1.
    pub read: usize,
}

/// Page of an export.
pub struct LedgerPage {
    /// Entries as JSON objects, in the order of time.
    pub entries: Vec<Value>,
    /// Number after which the next page begins; `None` at the end of the period.
    pub next: Option<u64>,
}

/// Reads the entries of a period: charges, ends without a charge, grants and corrections; of one account, or of all.
/// `after` is the number of an entry of the period, such as `next` of the page before. A page may have few entries, or
/// none, although more follow: the number of entries that are read is limited too. Returns `None` if the period has no
/// entry with the number `after`.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn entries_of_period(
    store: &LedgerStore,
    range: UsageRange,
    account: Option<&str>,
    after: Option<u64>,
) -> Result<Option<LedgerPage>, ReportError> {
    read_page(store, range, account, after, LIMITS)
}

pub(super) fn read_page(
    store: &LedgerStore,
    range: UsageRange,
    account: Option<&str>,
    after: Option<u64>,
    limits: PageLimits,
) -> Result<Option<LedgerPage>, ReportError> {
    let (start, end) = (range.from.start(), range.to.next().start());
    let first = match after {
        None => (start, 0),
        Some(number) => match find_entry(store, number)? {
            Some(entry) if (start..end).contains(&entry.at) => (entry.at, entry.seq + 1),
            _ => return Ok(None),
        },
    };
    let mut month = UtcMonth::from_unix(first.0);
    let mut starts = chain_starts_in_month(store, month, first)?;
    let (mut entries, mut last, mut read) = (Vec::new(), after, 0);
    while month.first_day().start() < end {
        let mut merge = EntryMerge::open(store, Some(&month.to_string()), &starts)?;
        while let Some((entry, line)) = merge.next_entry()?.filter(|(entry, _)| entry.at < end) {
            let is_wanted = !OMITTED.contains(&entry.kind.name())
                && account.is_none_or(|account| *entry.account == *account);
            if read >= limits.read || (is_wanted && entries.len() >= limits.returned) {
                return Ok(Some(LedgerPage { entries, next: last }));
            }
            if is_wanted {
                let unreadable = |_| ReportError("An entry of the ledger is not JSON.".to_owned());
                entries.push(serde_json::from_slice(line).map_err(unreadable)?);
            }
            read += 1;
            last = Some(entry.seq);
        }
        month = month.next();
        starts = chain_starts(store)?;
    }
    Ok(Some(LedgerPage { entries, next: None }))
}

/// Returns for each chain the number before its first entry of a month whose time and number are at least `first`.
pub(super) fn chain_starts_in_month(
    store: &LedgerStore,
    month: UtcMonth,
    first: (u64, u64),
) -> Result<Vec<u64>, ReportError> {
    let month = month.to_string();
    let start =
        |(chain, tip): (u32, LedgerTip)| start_in_chain(store, &month, (chain_start(chain), tip.seq), first);
    store.chains()?.into_iter().map(start).collect()
}

/// Searches a chain for the number before its first entry of a month that has at least this time and number. Times
/// never decrease within a chain, so each step halves the numbers that are left.
fn start_in_chain(
    store: &LedgerStore,
    month: &str,
    (mut low, mut high): (u64, u64),
    first: (u64, u64),
) -> Result<u64, ReportError> {
    while low < high {
        let middle = low + (high - low) / 2;
        let next = match store.next_block(month, middle)? {
            Some(block) => entry_after(&block.text, middle)?,
            None => None,
        };
        match next {
            Some(next) if (next.0, next.1) < first => low = next.1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Returns time and number of the first entry of a block after a number.
fn entry_after(text: &[u8], number: u64) -> Result<Option<(u64, u64)>, ReportError> {
    for line in split_lines(text) {
        let entry = parse_entry(line)?;
        if entry.seq > number {
            return Ok(Some((entry.at, entry.seq)));
        }
    }
    Ok(None)
}
