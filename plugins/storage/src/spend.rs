//! Spending of keys and accounts in the current day and month, saved periodically so that a budget survives a restart.
//! The ledger stays authoritative for money; these rows only limit spending.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::transaction::MAX_OPERATIONS;
use crate::versioned_json;
use crate::{Store, StoreError, StoreTable, Transaction};

const WHAT: &str = "a spend";

/// Owner of a spending record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpendOwner {
    /// API key, by its public id.
    Key(String),
    /// Account, by its id.
    Account(String),
}

/// Amounts spent, in micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendRecord {
    /// Amount spent in the UTC day of `at`.
    pub day: u64,
    /// Amount spent in the UTC month of `at`.
    pub month: u64,
    /// Time of the measurement, Unix seconds.
    pub at: u64,
}

/// Spending records of a store.
#[derive(Clone, Debug)]
pub struct SpendStore {
    store: Arc<dyn Store>,
}

impl SpendStore {
    /// Creates a view of the spending records in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> SpendStore {
        SpendStore { store }
    }

    /// Writes spending records, replacing older ones; one commit for many.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn put(&self, spends: &[(SpendOwner, SpendRecord)]) -> Result<(), StoreError> {
        for some in spends.chunks(MAX_OPERATIONS) {
            let mut batch = Transaction::new();
            for (spender, spend) in some {
                batch =
                    batch.put(StoreTable::Spend, spend_key(spender), versioned_json::encode(WHAT, spend)?);
            }
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Passes every spending record to `each`.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn for_each(&self, mut each: impl FnMut(SpendOwner, SpendRecord)) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Spend, b"", after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let id = String::from_utf8_lossy(row.key.get(1..).unwrap_or_default()).into_owned();
                let spender = if row.key.first() == Some(&b'k') {
                    SpendOwner::Key(id)
                } else {
                    SpendOwner::Account(id)
                };
                each(spender, versioned_json::decode(WHAT, &row.value)?);
            }
            after = page.rows.into_iter().last().map(|row| row.key);
            if !page.more {
                return Ok(());
            }
        }
    }
}

fn spend_key(spender: &SpendOwner) -> Vec<u8> {
    match spender {
        SpendOwner::Key(id) => [b"k", id.as_bytes()].concat(),
        SpendOwner::Account(id) => [b"a", id.as_bytes()].concat(),
    }
}
