//! Charges of a journal that the ledger has already.

use penstock_core::entry_number::number_before_chain;
use penstock_ledger::{EntryKind, HashChain, LedgerEntry, split_lines};
use penstock_storage::StoreError;
use penstock_storage::ledger::LedgerStore;
use std::collections::HashSet;
use std::sync::Arc;

/// Number of entries at the end of a chain that are searched first for the charges.
const FIRST_ENTRIES: u64 = 256;
/// Assumed maximum number of seconds by which the clock was set back while the process wrote.
const MAX_CLOCK_SETBACK_SECONDS: u64 = 3_600;

/// Returns the requests that a chain has charged since a time in Unix seconds, and possibly some that it charged
/// earlier.
///
/// # Errors
/// Returns the error of the store.
pub(super) fn charged_requests(
    store: &LedgerStore,
    chain: u32,
    since: u64,
) -> Result<HashSet<Arc<str>>, StoreError> {
    let Some(tip) = store.chain_tip(chain)? else { return Ok(HashSet::new()) };
    let (start, since) = (number_before_chain(chain), since.saturating_sub(MAX_CLOCK_SETBACK_SECONDS));
    let mut count = FIRST_ENTRIES;
    // Only the end of the chain is read, also if other processes have continued the chain.
    let after = loop {
        let after = tip.seq.saturating_sub(count).max(start);
        if after == start || first_time(store, after)?.is_some_and(|at| at < since) {
            break after;
        }
        count = count.saturating_mul(4);
    };
    let mut requests = HashSet::new();
    store.for_each_block(after, |block| {
        let entries = split_lines(&block.text).filter_map(parse);
        requests.extend(entries.filter_map(|entry| match entry.kind {
            EntryKind::Settle { request, .. } => Some(request),
            _ => None,
        }));
        Ok::<(), StoreError>(())
    })?;
    Ok(requests)
}

/// Returns the time, in Unix seconds, of the first entry in the block that contains the entry after a number, in the
/// chain of this number; `None` without such a block.
fn first_time(store: &LedgerStore, after: u64) -> Result<Option<u64>, StoreError> {
    for month in store.months()? {
        if let Some(block) = store.next_block(&month, after)? {
            return Ok(split_lines(&block.text).find_map(parse).map(|entry| entry.at));
        }
    }
    Ok(None)
}

/// Parses the entry of a line. A damaged line counts as no entry, so that its charge is reported as lost.
fn parse(line: &[u8]) -> Option<LedgerEntry> {
    HashChain::parse_unverified(line).ok().map(|(entry, _)| entry)
}
