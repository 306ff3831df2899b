//! Hash chain of the ledger: entries as lines of text, each with a hash over itself and the previous one.
//!
//! ```text
//! {"seq":7,"at":1795305600,…,"hash":"<64 hex digits>"}\n
//! hash(n) = SHA-256( hash(n-1) as 32 bytes ‖ the line up to and without `,"hash":` )
//! hash(0) = 32 bytes of zero
//! ```
//! A ledger has one chain for each process that writes at the same time, see [`penstock_core::entry_number`].

use crate::entry::LedgerEntry;
use crate::error::EntryError;
use crate::wire;
use penstock_core::{entry_number, hex};
use sha2::{Digest, Sha256};

/// SHA-256 hash of an entry.
pub type EntryHash = [u8; 32];

/// Value that stands for the previous hash in the first entry of a chain.
pub const GENESIS_HASH: EntryHash = [0; 32];

/// Maximum line length in bytes, newline included.
pub const MAX_LINE_BYTES: usize = 16 * 1024;

const HASH_PREFIX: &[u8] = b",\"hash\":\"";
const HASH_SUFFIX: &[u8] = b"\"}\n";
const HASH_MEMBER_BYTES: usize = HASH_PREFIX.len() + 64 + HASH_SUFFIX.len();

/// State of a chain: number and hash of the last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashChain {
    /// Number of the last entry; before the first entry, the number that precedes the chain.
    pub seq: u64,
    /// Hash of the last entry.
    pub hash: EntryHash,
}

impl Default for HashChain {
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS_HASH }
    }
}

impl HashChain {
    /// Creates the state before the first entry of a chain.
    #[must_use]
    pub const fn at_chain_start(chain: u32) -> Self {
        Self { seq: entry_number::number_before_chain(chain), hash: GENESIS_HASH }
    }

    /// Appends the line of an entry to `out` and advances the chain. The entry must have the next number.
    ///
    /// # Errors
    /// Returns an error if the number is not the next one or the line is over [`MAX_LINE_BYTES`]; then nothing is
    /// appended.
    pub fn append(&mut self, entry: &LedgerEntry, out: &mut Vec<u8>) -> Result<(), EntryError> {
        if entry.seq != self.seq + 1 {
            return Err(EntryError::UnexpectedNumber { expected: self.seq + 1 });
        }
        let from = out.len();
        let written = wire::write_entry(entry, out);
        // The closing brace is removed, and written again after the hash.
        let whole = out.pop() == Some(b'}') && out.len() - from + HASH_MEMBER_BYTES <= MAX_LINE_BYTES;
        if written.is_err() || !whole {
            out.truncate(from);
            return Err(EntryError::InvalidFormat);
        }
        let hash = self.next_hash(out.get(from..).unwrap_or_default());
        out.extend_from_slice(HASH_PREFIX);
        out.extend(hash_digits(&hash));
        out.extend_from_slice(HASH_SUFFIX);
        *self = Self { seq: entry.seq, hash };
        Ok(())
    }

    /// Parses and verifies the next line, newline included, and advances the chain.
    ///
    /// # Errors
    /// Returns the reason if the line is not the next one; then the chain is unchanged.
    pub fn verify_next(&mut self, line: &[u8]) -> Result<LedgerEntry, EntryError> {
        let (text, tail) = line
            .len()
            .checked_sub(HASH_MEMBER_BYTES)
            .map(|at| line.split_at(at))
            .ok_or(EntryError::InvalidFormat)?;
        let hash = self.next_hash(text);
        let digits = tail.strip_prefix(HASH_PREFIX).and_then(|rest| rest.strip_suffix(HASH_SUFFIX));
        let digits = digits.ok_or(EntryError::InvalidFormat)?;
        let entry = wire::parse_entry(line)?;
        if entry.seq != self.seq + 1 {
            return Err(EntryError::UnexpectedNumber { expected: self.seq + 1 });
        }
        if digits != hash_digits(&hash) {
            return Err(EntryError::HashMismatch);
        }
        *self = Self { seq: entry.seq, hash };
        Ok(entry)
    }

    /// Parses a line without verification; returns its entry, and the chain state with the number and the hash that the
    /// line states.
    ///
    /// # Errors
    /// Returns an error if this is not a ledger line.
    pub fn parse_unverified(line: &[u8]) -> Result<(LedgerEntry, Self), EntryError> {
        let tail = line
            .len()
            .checked_sub(HASH_MEMBER_BYTES)
            .and_then(|at| line.get(at..))
            .ok_or(EntryError::InvalidFormat)?;
        let digits = tail.strip_prefix(HASH_PREFIX).and_then(|rest| rest.strip_suffix(HASH_SUFFIX));
        let hash = digits.and_then(parse_hash).ok_or(EntryError::InvalidFormat)?;
        let entry = wire::parse_entry(line)?;
        let seq = entry.seq;
        Ok((entry, Self { seq, hash }))
    }

    fn next_hash(&self, text: &[u8]) -> EntryHash {
        Sha256::new().chain_update(self.hash).chain_update(text).finalize().into()
    }
}

/// Splits a text into lines, newlines included. A last line without a newline is returned too; it is not a valid ledger
/// line.
pub fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn hash_digits(hash: &EntryHash) -> [u8; 64] {
    let mut text = [0; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
        *pair = hex::encode_byte(*byte);
    }
    text
}

/// Parses a hash; `None` if it is invalid. Lines are canonical, so uppercase digits are rejected.
fn parse_hash(digits: &[u8]) -> Option<EntryHash> {
    hex::decode(digits).filter(|hash| hash_digits(hash) == digits)
}
