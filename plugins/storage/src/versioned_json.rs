//! Codec of versioned JSON rows, `{"v":1, …}`. A new field has a default, so the version stays the same. A change of
//! meaning gets a new version, which an older program rejects instead of misreading it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Store, StoreError, StoreTable, Transaction};

const VERSION: u32 = 1;
/// Prefix of every row that this version writes.
const ROW_PREFIX: &[u8] = br#"{"v":1,"#;

#[derive(Serialize)]
struct VersionedRow<'a, T> {
    v: u32,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Deserialize)]
struct RowVersion {
    v: u32,
}

/// Encodes a row; `record_name` names it in errors, as in "the row of {record_name}".
pub(crate) fn encode<T: Serialize>(record_name: &'static str, record: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(&VersionedRow { v: VERSION, record })
        .map_err(|_| StoreError::corrupt(format!("the row of {record_name} cannot be written as JSON")))
}

/// Decodes a row. An error does not quote the row.
pub(crate) fn decode<T: DeserializeOwned>(record_name: &'static str, row: &[u8]) -> Result<T, StoreError> {
    // The message of the parser is dropped, because it may quote the row.
    let broken = |_| StoreError::corrupt(format!("the row of {record_name} is in an unknown format"));
    // A row with the current prefix is parsed only once.
    if row.starts_with(ROW_PREFIX) {
        return serde_json::from_slice(row).map_err(broken);
    }
    match serde_json::from_slice(row).map_err(broken)? {
        RowVersion { v: VERSION } => serde_json::from_slice(row).map_err(broken),
        RowVersion { v } => Err(StoreError::Format { what: format!("{record_name} row version {v}") }),
    }
}

/// Outcome of a function that may change a record.
pub(crate) enum RecordChangeOutcome {
    /// The record stays unchanged.
    Unchanged,
    /// The record changes; further operations belong to the same transaction.
    Changed(Transaction),
}

/// Maximum number of attempts to change a row that other writers change concurrently.
pub(crate) const MAX_ATTEMPTS: usize = 32;

/// Changes a row by compare-and-swap. `change` is called for each attempt; the operations that it returns are part of
/// the transaction. Returns the current record and true if it was changed; `None` if there is no such row.
pub(crate) fn change_record<T: Serialize + DeserializeOwned>(
    store: &dyn Store,
    record_name: &'static str,
    (space, key): (StoreTable, &[u8]),
    mut change: impl FnMut(&mut T) -> Result<RecordChangeOutcome, StoreError>,
) -> Result<Option<(T, bool)>, StoreError> {
    let mut left = MAX_ATTEMPTS;
    loop {
        let Some(row) = store.get(space, key)? else { return Ok(None) };
        let mut record: T = decode(record_name, &row)?;
        let RecordChangeOutcome::Changed(with) = change(&mut record)? else {
            return Ok(Some((record, false)));
        };
        let own =
            Transaction::new().require_value(space, key, row).put(space, key, encode(record_name, &record)?);
        left -= 1;
        match store.apply(own.append_operations(with)) {
            Err(StoreError::Guard { .. }) if left > 0 => {}
            applied => return applied.map(|()| Some((record, true))),
        }
    }
}
