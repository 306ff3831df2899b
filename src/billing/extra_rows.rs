//! Additional rows in a commit of the ledger. A row that the store permanently rejects must not block the charges of
//! other operations, so the operation with this row is committed without any of its rows. Ledger entries are never
//! dropped.

use penstock_storage::StoreError;
use penstock_storage::ledger::{LedgerCommit, RowWrite};

/// Returns true if the store would reject the same bytes at every attempt.
pub(super) const fn is_permanent_rejection(why: &StoreError) -> bool {
    matches!(
        why,
        StoreError::TooLarge { .. } | StoreError::Format { .. } | StoreError::InvalidArgument { .. }
    )
}

/// Removes from a group the rows that the store will never accept: all rows of each operation that has a row over the
/// size limit, or the rows of all operations if no row is over the limit. `ops` contains the number of rows of each
/// operation; the removed operations are removed from it too. Returns the number of removed rows.
pub(super) fn drop_rejected_rows(group: &mut LedgerCommit, ops: &mut Vec<usize>) -> usize {
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
