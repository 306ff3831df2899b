//! Rows that go with the ledger's own and are not of it. One that the store
//! refuses for good must not keep everybody's charges from being written: its
//! op goes without its rows. Entries stay, all of them, whatever happens.

use penstock_storage::StoreError;
use penstock_storage::ledger::{LedgerCommit, RowWrite};

/// Whether the store says the same of these bytes each time it is asked.
pub(super) const fn is_final(why: &StoreError) -> bool {
    matches!(why, StoreError::TooLarge { .. } | StoreError::Format { .. })
}

/// Takes rows out of a group that the store will never take: those of each op that has one over its cap; all of
/// them where none is. `ops` says how many rows each op has. Returns how many went.
pub(super) fn shed(group: &mut LedgerCommit, ops: &mut Vec<usize>) -> usize {
    let before = group.extra_rows.len();
    let mut rows = std::mem::take(&mut group.extra_rows).into_iter();
    let mut parts: Vec<Vec<RowWrite>> =
        ops.drain(..).map(|count| rows.by_ref().take(count).collect()).collect();
    let fits = |part: &Vec<RowWrite>| part.iter().all(RowWrite::is_within_limits);
    if parts.iter().all(fits) {
        parts.clear();
    }
    parts.retain(fits);
    ops.extend(parts.iter().map(Vec::len));
    group.extra_rows = parts.into_iter().flatten().collect();
    before - group.extra_rows.len()
}
