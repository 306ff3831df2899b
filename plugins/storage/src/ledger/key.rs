//! The keys of the ledger's rows, see `mod.rs`.

use crate::StoreError;

/// Letters of a month in keys and names of files: `2026-11`.
const MONTH: usize = 7;

/// Where names begin.
pub(super) const NAMES: &[u8] = b"ledger\0";

/// The row of a name that is used up.
pub(super) fn name_key(name: &str) -> Vec<u8> {
    [NAMES, name.as_bytes()].concat()
}

/// The row of a month's length.
pub(super) fn month_key(month: &str) -> Vec<u8> {
    [b"ledger/", month.as_bytes()].concat()
}

/// The row of a sheet: its month, and the number of its last entry.
pub(super) fn sheet_key(month: &str, last: u64) -> Result<Vec<u8>, StoreError> {
    if month.len() != MONTH {
        return Err(StoreError::Format { what: "a month is written like 2026-11".to_owned() });
    }
    Ok([month.as_bytes(), &last.to_be_bytes()].concat())
}

/// Month and number of a sheet's row.
pub(super) fn split_key(key: &[u8]) -> Result<(String, u64), StoreError> {
    let broken = || StoreError::corrupt("the key of a sheet is not what this version reads");
    let (month, last) = key.split_at_checked(MONTH).ok_or_else(broken)?;
    let month = String::from_utf8(month.to_vec()).map_err(|_| broken())?;
    Ok((month, u64::from_be_bytes(last.try_into().map_err(|_| broken())?)))
}
