//! Checkpoint of the ledger: number and hash of the last entry of each chain. Each hash depends on all previous entries
//! of the chain. So a checkpoint that is stored outside of the gateway proves later that none of these entries was
//! changed or removed.
//!
//! ```text
//! 1042:5f3a…,8589934603:91c0…
//! ```

use penstock_core::hex;
use penstock_ledger::EntryHash;
use std::collections::BTreeMap;
use std::fmt;

/// Sentence about the format of a checkpoint, for error messages.
pub const CHECKPOINT_FORMAT_HINT: &str = "It has to be the checkpoint that `penstock credits verify` printed, such as 1042:5f3a…, with a hash of 64 hexadecimal digits for each chain.";

/// Checkpoint of the ledger: hashes of entries, by the numbers of the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerCheckpoint(BTreeMap<u64, EntryHash>);

impl LedgerCheckpoint {
    /// Creates a checkpoint of these entries.
    #[must_use]
    pub fn from_entries(entries: impl Iterator<Item = (u64, EntryHash)>) -> Self {
        Self(entries.collect())
    }

    /// Returns true if the checkpoint has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the text of a checkpoint; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let entry = |part: &str| {
            let (number, hash) = part.split_once(':')?;
            let number = number.parse().ok().filter(|number| *number > 0)?;
            Some((number, hex::decode(hash.as_bytes())?))
        };
        text.trim().split(',').map(|part| entry(part.trim())).collect::<Option<_>>().map(Self)
    }

    /// Returns false if the checkpoint has another hash for this entry. Any entry that the checkpoint does not have
    /// is consistent with it.
    #[must_use]
    pub fn is_consistent_with(&self, number: u64, hash: &EntryHash) -> bool {
        self.0.get(&number).is_none_or(|expected| expected == hash)
    }

    /// Returns the numbers of the entries in ascending order.
    pub fn entry_numbers(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }
}

impl fmt::Display for LedgerCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (number, hash)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{number}:{}", hex::encode(hash))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_checkpoint_is_read_back_and_other_texts_are_none() {
        let checkpoint =
            LedgerCheckpoint::from_entries([(8_589_934_603, [0xab; 32]), (7, [1; 32])].into_iter());
        let text = checkpoint.to_string();
        assert!(text.starts_with("7:0101") && text.contains(",8589934603:abab"), "{text}");
        assert_eq!(LedgerCheckpoint::parse(&text), Some(checkpoint.clone()));
        assert_eq!(
            LedgerCheckpoint::parse(&format!(" {} \n", text.replace(',', ", "))),
            Some(checkpoint.clone())
        );
        let truncated = text.get(..text.len() - 1).unwrap();
        for other in [
            "",
            "7",
            "7:",
            ":00",
            "0:00",
            "-1:00",
            "7:zz",
            truncated,
            &format!("{text},"),
            &format!("{text}0"),
        ] {
            assert_eq!(LedgerCheckpoint::parse(other), None, "{other}");
        }
        assert!(
            checkpoint.is_consistent_with(7, &[1; 32])
                && checkpoint.is_consistent_with(8, &[9; 32])
                && !checkpoint.is_consistent_with(7, &[2; 32])
        );
    }
}
