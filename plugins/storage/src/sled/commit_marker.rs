//! Commit marker: a row of the engine with the number of groups written, the number of rows, and the sum of their
//! checksums. It is written with each group.
//!
//! sled mistakes damage in its log for the end of the log and silently drops the rest. Therefore the number of the
//! last acknowledged group is also stored in a file next to the log. The check of the log before it is opened compares
//! both numbers and so detects a loss; a scan of all rows detects missing rows by their number and sum.

use std::fs::{self, File};
use std::io::{ErrorKind, Seek, Write};
use std::path::Path;

use crate::{StoreError, permissions};

/// Key of the marker row. Tag 0 belongs to no table, so callers never see it.
pub(crate) const CONTENT_DIGEST_KEY: &[u8] = b"\0tip";

/// Returns true if a key belongs to a row of a caller.
pub(crate) fn is_caller_row(disk_key: &[u8]) -> bool {
    disk_key.first() != Some(&0)
}

/// Number of rows and checksum of the contents of a store after `groups` groups, by which missing rows are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContentDigest {
    /// Number of groups written so far.
    pub(crate) groups: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// Sum of the [`fingerprint`] of each row, modulo 2^64: independent of the order of the rows.
    pub(crate) sum: u64,
}

impl ContentDigest {
    /// Adds a row with the fingerprint `mark` to the number of rows and the sum.
    pub(crate) fn add_fingerprint(&mut self, mark: u64) {
        self.rows = self.rows.wrapping_add(1);
        self.sum = self.sum.wrapping_add(mark);
    }

    /// Subtracts a row with the fingerprint `mark` from the number of rows and the sum.
    pub(crate) fn remove_fingerprint(&mut self, mark: u64) {
        self.rows = self.rows.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(mark);
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.groups, self.rows, self.sum].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<ContentDigest, StoreError> {
        match bytes.as_chunks::<8>() {
            ([groups, rows, sum], []) => Ok(ContentDigest {
                groups: u64::from_le_bytes(*groups),
                rows: u64::from_le_bytes(*rows),
                sum: u64::from_le_bytes(*sum),
            }),
            _ => Err(StoreError::corrupt("the store's commit marker has the wrong length")),
        }
    }
}

/// Returns a 64-bit fingerprint of a row: the CRC32C of its key and of its encoded value, mixed so that the sum of
/// all fingerprints changes if a row changes.
pub(crate) fn fingerprint(disk_key: &[u8], sealed: &[u8]) -> u64 {
    let key = crc32c::crc32c(disk_key);
    let both = u64::from(key) << 32 | u64::from(crc32c::crc32c_append(key, sealed));
    let mixed = (both ^ (both >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// File with the last acknowledged group: its number (8 bytes, little-endian) and the CRC32C of the number.
///
/// The file is written but not synced with each group, so after a power cut its number may be lower than that of the
/// log, but never higher.
#[derive(Debug)]
pub(crate) struct GroupNumberFile {
    file: File,
}

impl GroupNumberFile {
    /// Opens the file; creates it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<GroupNumberFile, StoreError> {
        let opened = permissions::open_options().create(true).truncate(false).write(true).open(path);
        let file =
            opened.map_err(|error| StoreError::io("open the file with the last group number", &error))?;
        Ok(GroupNumberFile { file })
    }

    /// Returns the number of the last acknowledged group in the file at `path`; 0 if the file is missing, or damaged by
    /// a power cut.
    ///
    /// # Errors
    /// Returns `Io` if the file exists and cannot be read.
    pub(crate) fn read(path: &Path) -> Result<u64, StoreError> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            read => read.map_err(|error| StoreError::io("read the last group number", &error))?,
        };
        let Some((number, sum)) = bytes.split_first_chunk::<8>() else { return Ok(0) };
        let intact = sum.get(..4) == Some(&crc32c::crc32c(number).to_le_bytes());
        Ok(if intact { u64::from_le_bytes(*number) } else { 0 })
    }

    /// Writes the number of a group. An I/O error is ignored: the group itself is durable.
    pub(crate) fn write(&self, groups: u64) {
        let number = groups.to_le_bytes();
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&crc32c::crc32c(&number).to_le_bytes());
        let mut file = &self.file;
        let _ = file.rewind().and_then(|()| file.write_all(&bytes));
    }

    /// Syncs the file to disk; an I/O error is ignored.
    pub(crate) fn sync(&self) {
        let _ = self.file.sync_all();
    }
}
