//! Rows of versioned JSON: `{"v":1, …}`. Fields are only ever added, each with a default; a change of meaning
//! is a new version, which an older program refuses to read instead of misreading it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Batch, Space, Store, StoreError};

const VERSION: u32 = 1;
/// How a row begins that says so.
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

/// The bytes of a row; `what` completes "the row of …".
pub(crate) fn write<T: Serialize>(what: &'static str, record: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(&Written { v: VERSION, record })
        .map_err(|_| StoreError::corrupt(format!("the row of {what} cannot be written as JSON")))
}

/// What a row says. An error does not quote it.
pub(crate) fn read<T: DeserializeOwned>(what: &'static str, row: &[u8]) -> Result<T, StoreError> {
    // Not the parser's own words: they can quote the row.
    let broken = |_| StoreError::corrupt(format!("the row of {what} is not what this version reads"));
    // So begin the rows that this version wrote: they are parsed once.
    if row.starts_with(FIRST) {
        return serde_json::from_slice(row).map_err(broken);
    }
    match serde_json::from_slice(row).map_err(broken)? {
        Version { v: VERSION } => serde_json::from_slice(row).map_err(broken),
        Version { v } => Err(StoreError::Format { what: format!("{what} row version {v}") }),
    }
}

/// What a change came to.
pub(crate) enum Changed {
    /// Nothing.
    No,
    /// The row is another, and this goes with it.
    Yes(Batch),
}

/// How often a change is tried against others changing the same rows.
pub(crate) const TRIES: usize = 32;

/// Changes a row as long as nobody else does at the same time. `change` is asked anew each time; the batch that
/// it gives is done together with the change. Returns the record as it is now and whether that is new; `None` if
/// there is no such row.
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
