//! Pages of the ledger's entries: the entries of all chains in the order of time. All calls block.

use super::entry_merge::EntryMerge;
use super::report::{ReportError, find_entry};
use penstock_core::entry_number::{chain_of, number_before_chain};
use penstock_storage::ledger::{LedgerStore, LedgerTip};

/// Approximate page size in bytes.
const PAGE_BYTES: usize = 512 * 1024;

/// Maximum number of entry numbers in one position, which has one number for each chain.
pub const MAX_NUMBERS_PER_POSITION: usize = 1_000;

/// Parses a position: numbers of entries that are separated by commas. Returns `None` for any other text, and for more
/// than [`MAX_NUMBERS_PER_POSITION`] numbers.
#[must_use]
pub fn parse_position(text: &str) -> Option<Vec<u64>> {
    let numbers: Option<Vec<u64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() <= MAX_NUMBERS_PER_POSITION)
}

/// Reads the page of the ledger's text after a position. Returns the page with the number of its last entry, or
/// `None` at the end of the ledger.
///
/// A position of one number is the number of an entry; the page continues after this entry in the order of time. A
/// position of several numbers has the number of the last entry that was read of each chain (0 for none); the page
/// continues each chain after its number. So no entry is missed, even if a gateway records it with an earlier time than
/// entries of other gateways.
///
/// # Errors
/// Returns an error if the store cannot be read.
pub fn read_text_page(store: &LedgerStore, position: &[u64]) -> Result<Option<(Vec<u8>, u64)>, ReportError> {
    let starts = page_starts(store, position)?;
    let mut merge = EntryMerge::open(store, None, &starts)?;
    let (mut text, mut last) = (Vec::new(), None);
    while text.len() <= PAGE_BYTES {
        let Some((entry, line)) = merge.next_entry()? else { break };
        text.extend_from_slice(line);
        last = Some(entry.seq);
    }
    Ok(last.map(|last| (text, last)))
}

/// Returns for each chain the number after which the page begins.
fn page_starts(store: &LedgerStore, position: &[u64]) -> Result<Vec<u64>, ReportError> {
    let chains = store.chains()?;
    let [number] = position else {
        let given = |chain: u32| position.iter().copied().filter(|number| chain_of(*number) == chain).max();
        let start = |(chain, _): (u32, LedgerTip)| given(chain).unwrap_or_else(|| number_before_chain(chain));
        return Ok(chains.into_iter().map(start).collect());
    };
    if *number == 0 || chains.len() < 2 {
        let start = |(chain, _): (u32, LedgerTip)| number_before_chain(chain).max(*number);
        return Ok(chains.into_iter().map(start).collect());
    }
    // An unknown entry number counts as a position after all entries.
    let time = find_entry(store, *number)?.map_or((u64::MAX, u64::MAX), |entry| (entry.at, entry.seq));
    chains
        .into_iter()
        .map(|(chain, tip)| {
            if chain == chain_of(*number) {
                Ok(*number)
            } else {
                last_entry_number_until(store, chain, tip.seq, time)
            }
        })
        .collect()
}

/// Returns the number of the last entry of a chain up to this time and number, or the number before the chain's first
/// entry if all are later. Times never decrease within a chain. `tip` is the number of the chain's last entry.
pub(super) fn last_entry_number_until(
    store: &LedgerStore,
    chain: u32,
    tip: u64,
    until: (u64, u64),
) -> Result<u64, ReportError> {
    let (mut low, mut high) = (number_before_chain(chain), tip);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match find_entry(store, middle)? {
            Some(entry) if (entry.at, entry.seq) <= until => low = middle,
            _ => high = middle - 1,
        }
    }
    Ok(low)
}
