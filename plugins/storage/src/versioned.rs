//! Codec of versioned JSON rows, `{"v":1, …}`. Fields are only ever added, each with a default; a change of meaning
//! gets a new version, which an older program rejects instead of misreading.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Batch, Space, Store, StoreError};

const VERSION: u32 = 1;
/// Prefix of every row that this version writes.
const FIRST: &[u8] = br#"{"v":1,"#;

#[derive(Serialize)]
struct Written<'a, T> {
    v: u32,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Encodes a row; `what` names it in errors, as in "the row of {what}".
pub(crate) fn write<T: Serialize>(what: &'static str, record: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(&Written { v: VERSION, record })
        .map_err(|_| StoreError::corrupt(format!("the row of {what} cannot be written as JSON")))
}

/// Decodes a row. An error does not quote the row.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, row: &[u8]) -> Result<T, StoreError> {
    // The parser's own message is dropped: it can quote the row.
    let broken = |_| StoreError::corrupt(format!("the row of {what} is in an unknown format"));
    // Rows written by this version start with this prefix and are parsed only once.
    if row.starts_with(FIRST) {
        return serde_json::from_slice(row).map_err(broken);
    }
    match serde_json::from_slice(row).map_err(broken)? {
        Version { v: VERSION } => serde_json::from_slice(row).map_err(broken),
        Version { v } => Err(StoreError::Format { what: format!("{what} row version {v}") }),
    }
}

/// Outcome of a change function.
pub(crate) enum Changed {
    /// Record that is unchanged.
    No,
    /// Record that is changed, with further operations for the same transaction.
    Yes(Batch),
}

/// Maximum number of attempts to change a row that other writers change concurrently.
pub(crate) const TRIES: usize = 32;

/// Changes a row by compare-and-swap. `change` is called again for each attempt; the operations it returns are part of
/// the transaction. Returns the current record and true if it was changed; `None` if there is no such row.
pub(crate) fn change<T: Serialize + DeserializeOwned>(
    store: &dyn Store,
    what: &'static str,
    (space, key): (Space, &[u8]),
    mut change: impl FnMut(&mut T) -> Result<Changed, StoreError>,
) -> Result<Option<(T, bool)>, StoreError> {
    let mut left = TRIES;
    loop {
        let Some(row) = store.get(space, key)? else { return Ok(None) };
        let mut record: T = read(what, &row)?;
        let Changed::Yes(with) = change(&mut record)? else { return Ok(Some((record, false))) };
        let own = Batch::new().is(space, key, row).put(space, key, write(what, &record)?);
        left -= 1;
        match store.apply(own.and(with)) {
            Err(StoreError::Guard { .. }) if left > 0 => {}
            applied => return applied.map(|()| Some((record, true))),
        }
    }
}
