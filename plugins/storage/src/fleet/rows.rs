//! Rows of a fleet, in the table `meta`:
//!
//! ```text
//! fleet/last                          →  counter: number of the last strand
//! fleet/strand/ id (4 bytes BE)       →  counter: beat of the strand
//! fleet/live/   id (4 bytes BE)       →  name of the process; missing once the strand is buried
//! fleet/part/   id (4 bytes BE) pool  →  counter: part of the strand
//! fleet/pool/   pool                  →  counter: rest of the pool
//! ```

use crate::StoreError;

pub(super) const LAST_KEY: &[u8] = b"fleet/last";
pub(super) const STRAND_PREFIX: &[u8] = b"fleet/strand/";

pub(super) fn strand_key(id: u32) -> Vec<u8> {
    [STRAND_PREFIX, &id.to_be_bytes()].concat()
}

pub(super) fn live_key(id: u32) -> Vec<u8> {
    [b"fleet/live/", &id.to_be_bytes()[..]].concat()
}

pub(super) fn pool_key(pool: &str) -> Vec<u8> {
    [b"fleet/pool/", pool.as_bytes()].concat()
}

pub(super) fn parts_prefix(id: u32) -> Vec<u8> {
    [b"fleet/part/", &id.to_be_bytes()[..]].concat()
}

pub(super) fn part_key(id: u32, pool: &str) -> Vec<u8> {
    [&parts_prefix(id), pool.as_bytes()].concat()
}

/// Returns the strand of a beat's key.
pub(super) fn strand_of(key: &[u8]) -> Result<u32, StoreError> {
    let id = key.strip_prefix(STRAND_PREFIX).and_then(|id| id.try_into().ok());
    Ok(u32::from_be_bytes(id.ok_or_else(|| StoreError::corrupt("the key of a strand"))?))
}

/// Returns the pool of a part's key.
pub(super) fn pool_of(id: u32, key: &[u8]) -> Result<String, StoreError> {
    let pool = key.strip_prefix(parts_prefix(id).as_slice());
    let pool = pool.and_then(|pool| String::from_utf8(pool.to_vec()).ok());
    pool.ok_or_else(|| StoreError::corrupt("the key of a part"))
}
