//! Export of a store as lines of JSON, each with a checksum; the last line has the row count and a SHA-256.
//!
//! ```text
//! {"penstock_export":1}
//! {"space":"keys","key":"<hex>","value":"<hex>","crc32c":123}      a row
//! {"space":"keys","key":"<hex>","crc32c":123}                      a row that was deleted after it was copied
//! {"end":true,"lines":2,"sha256":"<hex over all lines before, newlines included>"}
//! ```
//! Lines are applied in order; an export without its last line, or with a different count or hash, is rejected.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::transaction::{MAX_KEY_BYTES, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES};
use crate::{SnapshotRow, Store, StoreError, StoreTable, Transaction};

const VERSION: u32 = 1;
/// Maximum line length in bytes: key and value as hex, and the JSON around them.
const MAX_LINE: u64 = 2 * (MAX_KEY_BYTES + MAX_VALUE_BYTES) as u64 + 512;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ExportLine {
    Head {
        penstock_export: u32,
    },
    Row {
        space: String,
        key: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        value: Option<String>,
        crc32c: u32,
    },
    End {
        end: bool,
        lines: u64,
        sha256: String,
    },
}

/// Writes every row of `store` to `out` while the store continues to work; returns the number of row lines.
///
/// # Errors
/// Returns the errors of the store, or `Io` if `out` fails.
pub fn export(store: &dyn Store, out: &mut dyn Write) -> Result<u64, StoreError> {
    let mut sum = Sha256::new();
    let mut lines = 0_u64;
    write_line(out, &mut sum, &ExportLine::Head { penstock_export: VERSION })?;
    store.copy_rows(&mut |row| {
        lines += 1;
        write_line(out, &mut sum, &row_line(row))
    })?;
    let end = ExportLine::End { end: true, lines, sha256: encode_hex(&sum.finalize()) };
    write_line(out, &mut Sha256::new(), &end)?;
    out.flush().map_err(|error| StoreError::io("write the export", &error))?;
    Ok(lines)
}

/// Imports an export into `store`, which must be empty; returns the number of row lines.
///
/// Rows are written as they are read: after an error the store must be discarded.
///
/// # Errors
/// Returns `Corrupt` with the line number for a damaged or truncated export, `Format` for an export of another
/// version, `InvalidArgument` for a store that has rows, and the errors of `apply`.
pub fn import(store: &dyn Store, from: &mut dyn BufRead) -> Result<u64, StoreError> {
    if store.verify()?.rows > 0 {
        return Err(StoreError::InvalidArgument { what: "an import needs an empty store" });
    }
    let mut sum = Sha256::new();
    let mut rows = 0_u64;
    let mut writes = Transaction::new();
    let mut number = 0_u64;
    loop {
        number += 1;
        let damaged = |what: &str| StoreError::corrupt(format!("line {number} of the export {what}"));
        let text = read_line(from)?;
        if text.is_empty() {
            return Err(damaged("is missing: the export is truncated"));
        }
        match serde_json::from_slice(&text).map_err(|_| damaged("is not a line of an export"))? {
            ExportLine::Head { penstock_export } if number == 1 => {
                if penstock_export != VERSION {
                    return Err(StoreError::Format { what: format!("export version {penstock_export}") });
                }
            }
            ExportLine::Row { space, key, value, crc32c } if number > 1 => {
                let space = StoreTable::from_name(&space).ok_or_else(|| damaged("names an unknown table"))?;
                let key = decode_hex(&key).ok_or_else(|| damaged("has an invalid key"))?;
                let value = value
                    .map(|v| decode_hex(&v).ok_or_else(|| damaged("has an invalid value")))
                    .transpose()?;
                if crc32c != row_checksum(SnapshotRow { table: space, key: &key, value: value.as_deref() }) {
                    return Err(damaged("does not match its checksum"));
                }
                rows += 1;
                writes = match value {
                    Some(value) => writes.put(space, key, value),
                    None => writes.delete(space, key),
                };
                if writes.operations().len() >= MAX_OPERATIONS
                    || writes.byte_len() > MAX_TRANSACTION_BYTES / 2
                {
                    store.apply(std::mem::take(&mut writes))?;
                }
            }
            ExportLine::End { end: true, lines, sha256 } if number > 1 => {
                if lines != rows || sha256 != encode_hex(&sum.finalize()) {
                    return Err(damaged("does not match the lines before it"));
                }
                if !writes.is_empty() {
                    store.apply(writes)?;
                }
                return Ok(rows);
            }
            _ => return Err(damaged("is in the wrong position")),
        }
        sum.update(&text);
    }
}

fn row_line(row: SnapshotRow<'_>) -> ExportLine {
    ExportLine::Row {
        space: row.table.name().to_owned(),
        key: encode_hex(row.key),
        value: row.value.map(encode_hex),
        crc32c: row_checksum(row),
    }
}

fn row_checksum(row: SnapshotRow<'_>) -> u32 {
    let length = u32::try_from(row.key.len()).unwrap_or(u32::MAX);
    let sum = crc32c::crc32c(&[row.table.tag(), u8::from(row.value.is_some())]);
    let sum = crc32c::crc32c_append(sum, &length.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(sum, row.key), row.value.unwrap_or_default())
}

fn write_line(out: &mut dyn Write, digest: &mut Sha256, line: &ExportLine) -> Result<(), StoreError> {
    let mut text = serde_json::to_vec(line)
        .map_err(|error| StoreError::corrupt(format!("a row cannot be written as JSON: {error}")))?;
    text.push(b'\n');
    digest.update(&text);
    out.write_all(&text).map_err(|error| StoreError::io("write the export", &error))
}

fn read_line(from: &mut dyn BufRead) -> Result<Vec<u8>, StoreError> {
    let mut text = Vec::new();
    from.take(MAX_LINE)
        .read_until(b'\n', &mut text)
        .map_err(|error| StoreError::io("read the export", &error))?;
    Ok(text)
}

pub(crate) fn encode_hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Decodes hexadecimal text; `None` if the text is not hexadecimal.
pub(crate) fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
