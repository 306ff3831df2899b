//! Repairs of replica files from the store.

use std::fs::File;

use super::replica::contains_at;
use crate::StoreError;

/// Repair of a replica file from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRepair {
    /// State in which the file was found.
    pub found: FoundReplica,
    /// Description of the repair, with the month.
    pub what: String,
}

/// State in which a replica file was found before its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundReplica {
    /// File with the first entries of the store, without its last ones: the disk was full, or a crash kept the last
    /// write from the file.
    Incomplete,
    /// Missing or empty file, or one with other contents than the store has.
    Different,
}

/// Returns the state of a file of `length` bytes that has the store's blocks up to the offset `at`, but not `next`, the
/// block there.
pub(super) fn find_state(file: &File, length: u64, at: u64, next: &[u8]) -> Result<FoundReplica, StoreError> {
    let rest = length.checked_sub(at).and_then(|rest| next.get(..usize::try_from(rest).ok()?));
    Ok(match rest {
        Some(rest) if length > 0 && contains_at(file, at, rest)? => FoundReplica::Incomplete,
        _ => FoundReplica::Different,
    })
}
