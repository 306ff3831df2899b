//! Keys of the ledger's rows, see `mod.rs`.

use crate::StoreError;

/// Length of a month in keys and file names: `2026-11`.
const MONTH_BYTES: usize = 7;

/// Key prefix of the names of entries.
pub(super) const NAME_PREFIX: &[u8] = b"ledger\0";

/// Returns the key of an entry name.
pub(super) fn name_key(name: &str) -> Vec<u8> {
    [NAME_PREFIX, name.as_bytes()].concat()
}

/// Returns the key of a month's file length.
pub(super) fn month_key(month: &str) -> Vec<u8> {
    [b"ledger/", month.as_bytes()].concat()
}

/// Returns the key of a block: its month and the number of its last entry.
pub(super) fn block_key(month: &str, last: u64) -> Result<Vec<u8>, StoreError> {
    if month.len() != MONTH_BYTES {
        return Err(StoreError::Format { what: "a month is written like 2026-11".to_owned() });
    }
    Ok([month.as_bytes(), &last.to_be_bytes()].concat())
}

/// Splits the key of a block into month and entry number.
pub(super) fn split_block_key(key: &[u8]) -> Result<(String, u64), StoreError> {
    let broken = || StoreError::corrupt("the key of a ledger block is in an unknown format");
    let (month, last) = key.split_at_checked(MONTH_BYTES).ok_or_else(broken)?;
    let month = String::from_utf8(month.to_vec()).map_err(|_| broken())?;
    Ok((month, u64::from_be_bytes(last.try_into().map_err(|_| broken())?)))
}
