//! Rows of a fleet, in the table `meta`:
//!
//! ```text
//! fleet/last                          →  counter: number of the last incarnation
//! fleet/strand/ id (4 bytes BE)       →  counter: beat of the incarnation
//! fleet/live/   id (4 bytes BE)       →  name of the process; missing once the incarnation is evicted
//! fleet/part/   id (4 bytes BE) pool  →  counter: part of the pool that the incarnation holds
//! fleet/pool/   pool                  →  counter: rest of the pool
//! fleet/report/ id (4 bytes BE) row (2 bytes BE)  →  piece of the incarnation's report to its peers
//! fleet/pools                         →  present while the pools agree with the balances
//! fleet/opening                       →  id of the incarnation that fills the pools
//! ```

use crate::StoreError;

/// Key of the number of the last incarnation.
pub(super) const LAST_INCARNATION_KEY: &[u8] = b"fleet/last";
/// Key prefix of the beats of incarnations.
pub(super) const INCARNATION_PREFIX: &[u8] = b"fleet/strand/";
/// Key prefix of the process names of live incarnations.
pub(super) const PROCESS_NAME_PREFIX: &[u8] = b"fleet/live/";
/// Key prefix of the amounts left in pools.
pub(super) const POOL_PREFIX: &[u8] = b"fleet/pool/";
/// Key prefix of the parts of pools that incarnations hold.
pub(super) const POOL_PART_PREFIX: &[u8] = b"fleet/part/";
/// Key prefix of the reports of incarnations to their peers.
pub(super) const PEER_REPORT_PREFIX: &[u8] = b"fleet/report/";
/// Key of the row that exists while the pools agree with the balances.
pub(super) const POOLS_READY_KEY: &[u8] = b"fleet/pools";
/// Key of the id of the incarnation that fills the pools.
pub(super) const POOLS_OPENING_KEY: &[u8] = b"fleet/opening";

pub(super) fn incarnation_key(id: u32) -> Vec<u8> {
    [INCARNATION_PREFIX, &id.to_be_bytes()].concat()
}

pub(super) fn process_name_key(id: u32) -> Vec<u8> {
    [PROCESS_NAME_PREFIX, &id.to_be_bytes()].concat()
}

pub(super) fn pool_key(pool: &str) -> Vec<u8> {
    [POOL_PREFIX, pool.as_bytes()].concat()
}

/// Returns the key prefix of the parts that an incarnation holds.
pub(super) fn incarnation_parts_prefix(id: u32) -> Vec<u8> {
    [POOL_PART_PREFIX, &id.to_be_bytes()].concat()
}

/// Returns the key prefix of the report of an incarnation to its peers.
pub(super) fn peer_report_prefix(id: u32) -> Vec<u8> {
    [PEER_REPORT_PREFIX, &id.to_be_bytes()].concat()
}

/// Returns the key of one row of the report of an incarnation to its peers.
pub(super) fn peer_report_key(id: u32, row: u16) -> Vec<u8> {
    [PEER_REPORT_PREFIX, &id.to_be_bytes(), &row.to_be_bytes()].concat()
}

/// Returns the number of the incarnation in the key of a row of a peer report.
pub(super) fn parse_peer_report_key(key: &[u8]) -> Result<u32, StoreError> {
    let (incarnation, _row) =
        key.split_last_chunk::<2>().ok_or_else(|| StoreError::corrupt("the key of a report"))?;
    parse_incarnation_key(PEER_REPORT_PREFIX, incarnation)
}

/// Returns the key of the part of a pool that an incarnation holds.
pub(super) fn pool_part_key(id: u32, pool: &str) -> Vec<u8> {
    [&incarnation_parts_prefix(id), pool.as_bytes()].concat()
}

/// Returns the number of the incarnation in a key that consists of `prefix` and this number.
pub(super) fn parse_incarnation_key(prefix: &[u8], key: &[u8]) -> Result<u32, StoreError> {
    let id = key.strip_prefix(prefix).and_then(|id| id.try_into().ok());
    Ok(u32::from_be_bytes(id.ok_or_else(|| StoreError::corrupt("the key of an incarnation"))?))
}

/// Returns the name of the pool in the key of an incarnation's part.
pub(super) fn parse_pool_part_key(id: u32, key: &[u8]) -> Result<String, StoreError> {
    let pool = key.strip_prefix(incarnation_parts_prefix(id).as_slice());
    let pool = pool.and_then(|pool| String::from_utf8(pool.to_vec()).ok());
    pool.ok_or_else(|| StoreError::corrupt("the key of a part"))
}
