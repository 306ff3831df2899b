//! Position of a journal in the store: the last record of the journal that the ledger contains. The position changes in
//! the transactions that commit the records, so a record is replayed if and only if it is not in the ledger.
//!
//! ```text
//! meta `ledger/journal/<k>`  →  generation (8 bytes LE) | number (8 bytes LE)
//! ```

use super::LedgerStore;
use super::key::journal_position_key;
use crate::{StoreError, StoreTable, Transaction};

/// Position of a journal in the store: the last of its records that the ledger contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// Random number that identifies the journal.
    pub generation: u64,
    /// Number of the last record of the journal that the ledger contains.
    pub number: u64,
}

impl JournalPosition {
    pub(super) fn to_row(self) -> Vec<u8> {
        [self.generation.to_le_bytes(), self.number.to_le_bytes()].concat()
    }

    fn from_row(row: &[u8]) -> Option<JournalPosition> {
        let (generation, number) = row.split_first_chunk()?;
        let number = number.try_into().ok()?;
        Some(JournalPosition {
            generation: u64::from_le_bytes(*generation),
            number: u64::from_le_bytes(number),
        })
    }
}

impl LedgerStore {
    /// Returns the position of the journal of the chain that this process writes; `None` if the chain has never had a
    /// journal.
    ///
    /// # Errors
    /// Same as [`Store::get`](crate::Store::get), and `Corrupt` for a damaged row.
    pub fn journal_position(&self) -> Result<Option<JournalPosition>, StoreError> {
        let Some(row) = self.store.get(StoreTable::Meta, &journal_position_key(self.chain))? else {
            return Ok(None);
        };
        let position = JournalPosition::from_row(&row);
        position.map(Some).ok_or_else(|| StoreError::corrupt("the position of a journal"))
    }

    /// Records a new journal as the current journal of the chain. Only the journal recorded in the store is ever
    /// replayed.
    ///
    /// # Errors
    /// Same as [`Store::apply`](crate::Store::apply); `Guard` if the claim of the chain is lost.
    pub fn begin_journal(&self, position: JournalPosition) -> Result<(), StoreError> {
        let batch =
            self.claim.as_ref().map_or_else(Transaction::new, |claim| claim.add_guards(Transaction::new()));
        self.store.apply(batch.put(StoreTable::Meta, journal_position_key(self.chain), position.to_row()))
    }
}
