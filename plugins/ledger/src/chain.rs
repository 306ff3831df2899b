//! Hash chain of the ledger: entries as lines of text, each with a hash over itself and the previous one.
//!
//! ```text
//! {"seq":7,"at":1795305600,…,"hash":"<64 hex digits>"}\n
//! hash(n) = SHA-256( hash(n-1) as 32 bytes ‖ the line up to and without `,"hash":` )
//! hash(0) = 32 bytes of zero
//! ```

use crate::entry::Entry;
use crate::misfit::Misfit;
use crate::wire;
use penstock_contract::hex;
use sha2::{Digest, Sha256};

/// SHA-256 hash of an entry.
pub type Hash = [u8; 32];

/// Hash before the first entry.
pub const GENESIS: Hash = [0; 32];

/// Maximum line length in bytes, newline included.
pub const MAX_LINE: usize = 16 * 1024;

const BEFORE: &[u8] = b",\"hash\":\"";
const AFTER: &[u8] = b"\"}\n";
const TAIL: usize = BEFORE.len() + 64 + AFTER.len();

/// State of a chain: number and hash of the last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Number of the last entry; 0 before the first.
    pub seq: u64,
    /// Hash of the last entry.
    pub hash: Hash,
}

impl Default for Chain {
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS }
    }
}

impl Chain {
    /// Appends the line of an entry to `out` and advances the chain. The entry must have the next number.
    ///
    /// # Errors
    /// Returns an error if the number is not the next one or the line is over [`MAX_LINE`]; then nothing is appended.
    pub fn seal(&mut self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), Misfit> {
        if entry.seq != self.seq + 1 {
            return Err(Misfit::Order { expected: self.seq + 1 });
        }
        let from = out.len();
        let written = wire::write(entry, out);
        // The closing brace follows the hash.
        let whole = out.pop() == Some(b'}') && out.len() - from + TAIL <= MAX_LINE;
        if written.is_err() || !whole {
            out.truncate(from);
            return Err(Misfit::Unreadable);
        }
        let hash = self.follow(out.get(from..).unwrap_or_default());
        out.extend_from_slice(BEFORE);
        out.extend(digits_of(&hash));
        out.extend_from_slice(AFTER);
        *self = Self { seq: entry.seq, hash };
        Ok(())
    }

    /// Parses and verifies the next line, newline included, and advances the chain.
    ///
    /// # Errors
    /// Returns the reason if the line is not the next one; then the chain is unchanged.
    pub fn open(&mut self, line: &[u8]) -> Result<Entry, Misfit> {
        let (text, tail) =
            line.len().checked_sub(TAIL).map(|at| line.split_at(at)).ok_or(Misfit::Unreadable)?;
        let hash = self.follow(text);
        let digits = tail.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
        let digits = digits.ok_or(Misfit::Unreadable)?;
        let entry = wire::read(line)?;
        if entry.seq != self.seq + 1 {
            return Err(Misfit::Order { expected: self.seq + 1 });
        }
        if digits != digits_of(&hash) {
            return Err(Misfit::Chain);
        }
        *self = Self { seq: entry.seq, hash };
        Ok(entry)
    }

    /// Parses a line without verification; returns its entry and the chain state that the line claims.
    ///
    /// # Errors
    /// Returns an error if this is not a ledger line.
    pub fn glance(line: &[u8]) -> Result<(Entry, Self), Misfit> {
        let tail = line.len().checked_sub(TAIL).and_then(|at| line.get(at..)).ok_or(Misfit::Unreadable)?;
        let digits = tail.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(AFTER));
        let hash = digits.and_then(read).ok_or(Misfit::Unreadable)?;
        let entry = wire::read(line)?;
        let seq = entry.seq;
        Ok((entry, Self { seq, hash }))
    }

    fn follow(&self, text: &[u8]) -> Hash {
        Sha256::new().chain_update(self.hash).chain_update(text).finalize().into()
    }
}

/// Splits a text into lines, newlines included. A last line without a newline is returned too; it is not a valid ledger
/// line.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

fn digits_of(hash: &Hash) -> [u8; 64] {
    let mut text = [0; 64];
    for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
        *pair = hex::pair(*byte);
    }
    text
}

/// Parses a hash. Lines are canonical, so uppercase digits are rejected.
fn read(digits: &[u8]) -> Option<Hash> {
    hex::bytes(digits).filter(|hash| digits_of(hash) == digits)
}
