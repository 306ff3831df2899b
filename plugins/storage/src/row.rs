//! Encoding of a row on disk: `version (1 byte) | CRC32C (4 bytes, little-endian) | value`, under the key `tag | key`.
//! The checksum covers tag, key and value, so it detects a value stored under another row's key as well as a flipped
//! bit.

use crate::{StoreError, StoreTable};

const VERSION: u8 = 1;
/// Number of bytes on disk beside the key and the value of a row: tag, version and checksum.
pub(crate) const ENCODING_BYTES: u64 = 6;

/// Returns the key of a row on disk.
pub(crate) fn disk_key(space: StoreTable, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + key.len());
    out.push(space.tag());
    out.extend_from_slice(key);
    out
}

/// Returns the bytes of a row on disk: the version, a checksum over the key and the value, and the value.
pub(crate) fn encode_checksummed(disk_key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(5 + value.len());
    out.push(VERSION);
    out.extend_from_slice(&checksum(disk_key, value).to_le_bytes());
    out.extend_from_slice(value);
    out
}

/// Verifies the version and the checksum of a row's bytes on disk, and returns the value in them.
///
/// # Errors
/// Returns `Corrupt` if the row is too short or its checksum differs, `Format` if its version is unknown.
pub(crate) fn decode_checksummed<'a>(disk_key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let broken = |what: &str| {
        let space =
            disk_key.first().and_then(|tag| StoreTable::from_tag(*tag)).map_or("unknown", StoreTable::name);
        StoreError::corrupt(format!("a row of {space} {what}"))
    };
    let Some((&version, rest)) = sealed.split_first() else { return Err(broken("is empty")) };
    if version != VERSION {
        return Err(StoreError::Format { what: format!("row version {version}") });
    }
    let Some((sum, value)) = rest.split_first_chunk::<4>() else { return Err(broken("is truncated")) };
    if u32::from_le_bytes(*sum) != checksum(disk_key, value) {
        return Err(broken("does not match its checksum"));
    }
    Ok(value)
}

/// Computes the CRC32C over `key length (4 bytes, little-endian) | key | value`: because of the length, a shift of
/// bytes between key and value is detected.
pub(crate) fn checksum(disk_key: &[u8], value: &[u8]) -> u32 {
    let length = u32::try_from(disk_key.len()).unwrap_or(u32::MAX);
    let sum = crc32c::crc32c(&length.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(sum, disk_key), value)
}

#[cfg(test)]
mod tests;
