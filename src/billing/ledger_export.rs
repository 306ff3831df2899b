//! Export of the ledger's entries of a period, for an accountant's own programs. All calls block.
//!
//! A position in the export has a number for each chain, since a gateway that was cut off from the database records
//! entries later than other gateways, with earlier times.

use super::entry_merge::EntryMerge;
use super::entry_pages::last_entry_number_until;
use super::report::{ReportError, find_entry, parse_entry};
use penstock_core::calendar::UtcMonth;
use penstock_core::entry_number::{chain_of, number_before_chain};
use penstock_ledger::split_lines;
use penstock_storage::ledger::{LedgerStore, LedgerTip};
use penstock_usage::UsageRange;
use serde_json::Value;
use std::ops::Range;

/// Maximum numbers of entries of one page.
const LIMITS: PageLimits = PageLimits { returned: 5_000, read: 100_000 };
/// Kinds of entries that an export leaves out: they end no request and change no balance.
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
    /// Position after which the next page begins; `None` at the end of the period.
    pub next: Option<Vec<u64>>,
}

/// Reads the entries of a period: charges, ends without a charge, grants and corrections; of one account, or of all.
/// `after` is the position `next` of the page before, empty for the first page. A position of one number is the number
/// of an entry of the period, and the page continues after this entry in the order of time. A position of several
/// numbers has the number of the last entry that was read of each chain (0 for none). A page may have few entries, or
/// none, although more follow: the number of entries that are read is limited too. Returns `None` if there is no such
/// position.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn entries_of_period(
    store: &LedgerStore,
    range: UsageRange,
    account: Option<&str>,
    after: &[u64],
) -> Result<Option<LedgerPage>, ReportError> {
    read_page(store, range, account, after, LIMITS)
}

/// Reads a page as [`entries_of_period`] does, with other limits.
pub(super) fn read_page(
    store: &LedgerStore,
    range: UsageRange,
    account: Option<&str>,
    after: &[u64],
    limits: PageLimits,
) -> Result<Option<LedgerPage>, ReportError> {
    let period = range.from.start()..range.to.end();
    let Some(mut position) = ExportPosition::open(store, &period, after)? else { return Ok(None) };
    let mut merge = EntryMerge::open_months(store, &months_of(&period), &position.starts())?;
    let (mut entries, mut read) = (Vec::new(), 0);
    while let Some((entry, line)) = merge.next_entry()?.filter(|(entry, _)| entry.at < period.end) {
        let is_wanted =
            !OMITTED.contains(&entry.kind.name()) && account.is_none_or(|account| *entry.account == *account);
        if read >= limits.read || (is_wanted && entries.len() >= limits.returned) {
            return Ok(Some(LedgerPage { entries, next: Some(position.numbers(store.claim().is_some())) }));
        }
        if is_wanted {
            let unreadable = |_| ReportError::Invalid("An entry of the ledger is not JSON.".to_owned());
            entries.push(serde_json::from_slice(line).map_err(unreadable)?);
        }
        read += 1;
        position.advance(entry.seq);
    }
    Ok(Some(LedgerPage { entries, next: None }))
}

/// Returns the months of a period in ascending order.
fn months_of(period: &Range<u64>) -> Vec<String> {
    let months = UtcMonth::from_unix(period.start).iter_from();
    let months = months.take_while(|month| month.first_day().start() < period.end);
    months.map(|month| month.to_string()).collect()
}

/// Position in one chain.
struct ChainPosition {
    chain: u32,
    /// Number before the first entry of the period.
    start: u64,
    /// Number of the last entry that was read.
    read: u64,
}

/// Position in the entries of a period.
struct ExportPosition(Vec<ChainPosition>);

impl ExportPosition {
    /// Opens the position `after`; `None` if there is no such position in the period.
    fn open(store: &LedgerStore, period: &Range<u64>, after: &[u64]) -> Result<Option<Self>, ReportError> {
        let until = match after {
            [number] => match find_entry(store, *number)? {
                Some(entry) if period.contains(&entry.at) => Some((entry.at, entry.seq)),
                _ => return Ok(None),
            },
            _ => None,
        };
        let chains = store.chains()?;
        let has = |number: u64| {
            let is_read = |(chain, tip): &(u32, LedgerTip)| *chain == chain_of(number) && number <= tip.seq;
            number == 0 || chains.iter().any(is_read)
        };
        if !after.iter().all(|number| has(*number)) {
            return Ok(None);
        }
        let month = UtcMonth::from_unix(period.start).to_string();
        let position = |(chain, tip): &(u32, LedgerTip)| -> Result<ChainPosition, ReportError> {
            let (chain, ends) = (*chain, (number_before_chain(*chain), tip.seq));
            let start = start_in_chain(store, &month, ends, (period.start, 0))?;
            let given = after.iter().copied().filter(|number| chain_of(*number) == chain).max();
            let read = match (until, given) {
                (_, Some(number)) => number,
                (Some(until), None) => last_entry_number_until(store, chain, tip.seq, until)?,
                (None, None) => start,
            };
            Ok(ChainPosition { chain, start, read: read.max(start) })
        };
        Ok(Some(Self(chains.iter().map(position).collect::<Result<_, _>>()?)))
    }

    fn starts(&self) -> Vec<u64> {
        self.0.iter().map(|position| position.read).collect()
    }

    fn advance(&mut self, number: u64) {
        if let Some(position) = self.0.iter_mut().find(|position| position.chain == chain_of(number)) {
            position.read = number;
        }
    }

    /// Returns the number of the last entry that was read of each chain; chains of which nothing was read are left
    /// out. If other chains may exist, returns at least two numbers, because a single number means a position in the
    /// order of time.
    fn numbers(&self, is_shared: bool) -> Vec<u64> {
        let has_read = |position: &&ChainPosition| position.read > position.start;
        let mut numbers: Vec<u64> = self.0.iter().filter(has_read).map(|position| position.read).collect();
        if numbers.len() == 1 && (is_shared || self.0.len() > 1) {
            numbers.insert(0, 0);
        }
        numbers
    }
}

/// Returns for each chain the number before its first entry of a month whose time and number are at least `first`.
pub(super) fn chain_start_positions_in_month(
    store: &LedgerStore,
    month: UtcMonth,
    first: (u64, u64),
) -> Result<Vec<u64>, ReportError> {
    let month = month.to_string();
    let start = |(chain, tip): (u32, LedgerTip)| {
        start_in_chain(store, &month, (number_before_chain(chain), tip.seq), first)
    };
    store.chains()?.into_iter().map(start).collect()
}

/// Finds, by binary search, the number before a chain's first entry of a month that has at least this time and
/// number. Times never decrease within a chain.
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

/// Returns time and number of the first entry of a block after a number; `None` if the block has no such entry.
fn entry_after(text: &[u8], number: u64) -> Result<Option<(u64, u64)>, ReportError> {
    for line in split_lines(text) {
        let entry = parse_entry(line)?;
        if entry.seq > number {
            return Ok(Some((entry.at, entry.seq)));
        }
    }
    Ok(None)
}
