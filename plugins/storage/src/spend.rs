//! What keys and accounts have spent in the running day and month: written down now and then, so that a budget
//! outlives a restart. The ledger stays the truth about money; these rows only bound it.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::batch::MAX_STEPS;
use crate::versioned;
use crate::{Batch, Space, Store, StoreError};

const WHAT: &str = "a spend";

/// Whose spend it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Spender {
    /// The key of this public id.
    Key(String),
    /// The account of this id.
    Account(String),
}

/// What was spent, in micro-credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpendRecord {
    /// In the day of `at`, UTC.
    pub day: u64,
    /// In the month of `at`, UTC.
    pub month: u64,
    /// When this was so, Unix seconds.
    pub at: u64,
}

/// The spends of a store.
#[derive(Clone, Debug)]
pub struct SpendStore {
    store: Arc<dyn Store>,
}

impl SpendStore {
    /// The spends in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> SpendStore {
        SpendStore { store }
    }

    /// Writes spends down, over older ones; one commit for many.
    ///
    /// # Errors
    /// As [`Store::apply`].
    pub fn put(&self, spends: &[(Spender, SpendRecord)]) -> Result<(), StoreError> {
        for some in spends.chunks(MAX_STEPS) {
            let mut batch = Batch::new();
            for (spender, spend) in some {
                batch = batch.put(Space::Spend, place(spender), versioned::write(WHAT, spend)?);
            }
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Gives every spend to `each`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn each(&self, mut each: impl FnMut(Spender, SpendRecord)) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(Space::Spend, b"", after.as_deref(), crate::MAX_PAGE)?;
            for row in &page.rows {
                let id = String::from_utf8_lossy(row.key.get(1..).unwrap_or_default()).into_owned();
                let spender =
                    if row.key.first() == Some(&b'k') { Spender::Key(id) } else { Spender::Account(id) };
                each(spender, versioned::read(WHAT, &row.value)?);
            }
            after = page.rows.into_iter().last().map(|row| row.key);
            if !page.more {
                return Ok(());
            }
        }
    }
}

fn place(spender: &Spender) -> Vec<u8> {
    match spender {
        Spender::Key(id) => [b"k", id.as_bytes()].concat(),
        Spender::Account(id) => [b"a", id.as_bytes()].concat(),
    }
}
