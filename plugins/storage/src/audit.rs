//! The audit log: who changed what and when, in the same batch as the change itself, so that neither is ever
//! without the other. Entries are numbered from 1 and chained: each holds the SHA-256 of the one before, and a
//! head row names the last. An entry never holds a secret; whoever writes one sees to that.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

use crate::export::hex;
use crate::versioned::{self, TRIES};
use crate::{Batch, Space, Store, StoreError};

/// The row that names the last entry; entries lie under `e` and their number, big-endian.
const HEAD: &[u8] = b"head";
const ENTRY: u8 = b'e';
const WHAT: &str = "the audit log";

/// One change, as whoever makes it tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// When, Unix seconds.
    pub at: u64,
    /// Who, as far as known.
    pub who: String,
    /// What was done, such as `key.revoke`.
    pub what: String,
    /// To which: an account's id or a key's public id.
    pub target: String,
    /// The fields that changed, with their new values.
    pub change: Value,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u64,
    /// SHA-256 of the entry before it as it lies in the store, hexadecimal; empty for the first.
    pub previous: String,
    /// The change.
    #[serde(flatten)]
    pub said: Said,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    number: u64,
    sum: String,
}

/// Entries by rising number, a page at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The number to pass as `after` for the next page; `None` if there is none.
    pub next: Option<u64>,
}

/// The audit log of a store.
#[derive(Clone, Debug)]
pub struct AuditLog {
    store: Arc<dyn Store>,
}

impl AuditLog {
    /// The log in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> AuditLog {
        AuditLog { store }
    }

    /// Does a batch and tells of it, both or neither.
    ///
    /// # Errors
    /// As [`Store::apply`]; `Guard` with the step of `batch` that did not hold.
    pub fn apply(&self, batch: &Batch, said: &Said) -> Result<(), StoreError> {
        let own = batch.operations().len();
        let mut left = TRIES;
        loop {
            left -= 1;
            match self.store.apply(batch.clone().and(self.entry(said)?)) {
                // Another entry was written meanwhile; the caller's own guards are the caller's.
                Err(StoreError::Guard { step }) if step >= own && left > 0 => {}
                applied => return applied,
            }
        }
    }

    /// The steps that write the next entry, with guards that hold as long as no other is written first.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub(crate) fn entry(&self, said: &Said) -> Result<Batch, StoreError> {
        let row = self.store.get(Space::Audit, HEAD)?;
        let head: Head =
            row.as_deref().map(|row| versioned::read(WHAT, row)).transpose()?.unwrap_or_default();
        let number = head.number + 1;
        let entry = versioned::write(WHAT, &Entry { number, previous: head.sum, said: said.clone() })?;
        let next = versioned::write(WHAT, &Head { number, sum: hex(&Sha256::digest(&entry)) })?;
        let batch = match row {
            Some(row) => Batch::new().is(Space::Audit, HEAD, row),
            None => Batch::new().absent(Space::Audit, HEAD),
        };
        Ok(batch.put(Space::Audit, HEAD, next).put(Space::Audit, place(number), entry))
    }

    /// At most `limit` entries after the number `after`.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn list(&self, after: u64, limit: usize) -> Result<AuditPage, StoreError> {
        let page = self.store.scan(Space::Audit, &[ENTRY], Some(&place(after)), limit)?;
        let entries: Vec<Entry> =
            page.rows.iter().map(|row| versioned::read(WHAT, &row.value)).collect::<Result<_, _>>()?;
        let next = if page.more { entries.last().map(|entry| entry.number) } else { None };
        Ok(AuditPage { entries, next })
    }

    /// The number of the last entry; 0 if there is none.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn last(&self) -> Result<u64, StoreError> {
        let row = self.store.get(Space::Audit, HEAD)?;
        let head: Head =
            row.as_deref().map(|row| versioned::read(WHAT, row)).transpose()?.unwrap_or_default();
        Ok(head.number)
    }

    /// Reads the whole log and follows its chain; the number of the first entry that does not fit, if any.
    ///
    /// # Errors
    /// As [`Store::scan`].
    pub fn verify(&self) -> Result<Option<u64>, StoreError> {
        let (mut expected, mut sum) = (1_u64, String::new());
        let mut after = place(0).to_vec();
        loop {
            let page = self.store.scan(Space::Audit, &[ENTRY], Some(&after), crate::MAX_PAGE)?;
            for row in &page.rows {
                let entry: Entry = versioned::read(WHAT, &row.value)?;
                if row.key != place(expected) || entry.number != expected || entry.previous != sum {
                    return Ok(Some(expected));
                }
                expected += 1;
                sum = hex(&Sha256::digest(&row.value));
                after.clone_from(&row.key);
            }
            if !page.more {
                let row = self.store.get(Space::Audit, HEAD)?;
                let head: Head =
                    row.as_deref().map(|row| versioned::read(WHAT, row)).transpose()?.unwrap_or_default();
                let fits = head.number + 1 == expected && head.sum == sum;
                return Ok((!fits).then_some(expected));
            }
        }
    }
}

fn place(number: u64) -> [u8; 9] {
    let mut key = [ENTRY; 9];
    if let Some(digits) = key.get_mut(1..) {
        digits.copy_from_slice(&number.to_be_bytes());
    }
    key
}
