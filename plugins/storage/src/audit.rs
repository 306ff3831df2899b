//! Audit log of administrative changes. An entry is written in the same transaction as its change, so neither exists
//! without the other. Entries are numbered from 1 and form a hash chain: each contains the SHA-256 of the previous
//! one, and a head row identifies the last. An entry must not contain a secret; the code that creates the entry
//! ensures this.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

use crate::export::encode_hex;
use crate::filtered_page::{MAX_FILTERED_ROWS, ScannedRows, filtered_page};
use crate::versioned_json::{self, MAX_ATTEMPTS};
use crate::{RowPage, RowScan, Store, StoreError, StoreTable, Transaction};

/// Key of the head row, which identifies the last entry. The key of an entry is `e` and its number, big-endian.
const HEAD_KEY: &[u8] = b"head";
const ENTRY_TAG: u8 = b'e';
const WHAT: &str = "the audit log";

/// Description of one administrative change by the person or program that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDescription {
    /// Time of the change, Unix seconds.
    pub at: u64,
    /// Author of the change, such as `anna from 10.0.0.7`: a name, and the address of the client.
    pub who: String,
    /// Action, such as `key.revoke`.
    pub what: String,
    /// Changed object, such as an account id, a user name or the public id of a key.
    pub target: String,
    /// Changed fields with their new values.
    pub change: Value,
}

/// Entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Number of the entry, from 1.
    pub number: u64,
    /// SHA-256 of the previous entry as stored, hexadecimal; empty for the first.
    pub previous: String,
    /// Description of the change.
    #[serde(flatten)]
    pub description: ChangeDescription,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct AuditHead {
    number: u64,
    sum: String,
}

/// Page of entries in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Entries of the page.
    pub entries: Vec<AuditEntry>,
    /// Number to pass as `after` for the next page; `None` on the last page.
    pub next: Option<u64>,
}

impl AuditPage {
    /// Parses a page of the scan that [`AuditLog::entry_scan_after`] returns.
    ///
    /// # Errors
    /// Returns `Corrupt` if an entry is damaged.
    pub fn from_rows(page: &RowPage) -> Result<AuditPage, StoreError> {
        let entries = page.rows.iter().map(|row| versioned_json::decode(WHAT, &row.value));
        let entries: Vec<AuditEntry> = entries.collect::<Result<_, _>>()?;
        let next = if page.more { entries.last().map(|entry| entry.number) } else { None };
        Ok(AuditPage { entries, next })
    }
}

/// Audit log of a store.
#[derive(Clone, Debug)]
pub struct AuditLog {
    store: Arc<dyn Store>,
}

impl AuditLog {
    /// Creates a view of the audit log in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> AuditLog {
        AuditLog { store }
    }

    /// Applies a transaction together with its audit entry.
    ///
    /// # Errors
    /// Same as [`Store::apply`]; `Guard` names the failed guard of `batch`, or a step after its operations if other
    /// entries were written during all attempts.
    pub fn apply_with_entry(
        &self,
        batch: &Transaction,
        description: &ChangeDescription,
    ) -> Result<(), StoreError> {
        self.apply_with_entries(batch, std::slice::from_ref(description))
    }

    /// Applies a transaction together with its audit entries.
    ///
    /// # Errors
    /// Same as [`AuditLog::apply_with_entry`].
    pub(crate) fn apply_with_entries(
        &self,
        batch: &Transaction,
        descriptions: &[ChangeDescription],
    ) -> Result<(), StoreError> {
        let own = batch.operations().len();
        let mut left = MAX_ATTEMPTS;
        loop {
            left -= 1;
            match self.store.apply(batch.clone().append_operations(self.entries_operations(descriptions)?)) {
                // If another entry was written concurrently, the transaction is retried. A failed guard of the caller
                // is returned as an error.
                Err(StoreError::Guard { step }) if step >= own && left > 0 => {}
                applied => return applied,
            }
        }
    }

    /// Returns the operations that write the next entry, with guards that fail if another entry is written first.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub(crate) fn entry_operations(
        &self,
        description: &ChangeDescription,
    ) -> Result<Transaction, StoreError> {
        self.entries_operations(std::slice::from_ref(description))
    }

    /// Returns the operations that write the next entries, like [`AuditLog::entry_operations`].
    fn entries_operations(&self, descriptions: &[ChangeDescription]) -> Result<Transaction, StoreError> {
        let row = self.store.get(StoreTable::Audit, HEAD_KEY)?;
        let mut head: AuditHead =
            row.as_deref().map(|row| versioned_json::decode(WHAT, row)).transpose()?.unwrap_or_default();
        let mut batch = match row {
            Some(row) => Transaction::new().require_value(StoreTable::Audit, HEAD_KEY, row),
            None => Transaction::new().require_absent(StoreTable::Audit, HEAD_KEY),
        };
        for description in descriptions {
            let (number, previous) = (head.number + 1, head.sum);
            let entry = AuditEntry { number, previous, description: description.clone() };
            let entry = versioned_json::encode(WHAT, &entry)?;
            head = AuditHead { number, sum: encode_hex(&Sha256::digest(&entry)) };
            batch = batch.put(StoreTable::Audit, entry_key(number), entry);
        }
        Ok(batch.put(StoreTable::Audit, HEAD_KEY, versioned_json::encode(WHAT, &head)?))
    }

    /// Returns at most `limit` entries after the number `after`.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list(&self, after: u64, limit: usize) -> Result<AuditPage, StoreError> {
        let scan = AuditLog::entry_scan_after(after, limit);
        AuditPage::from_rows(&self.store.scan(scan.table, &scan.prefix, scan.after.as_deref(), limit)?)
    }

    /// Returns at most `limit` entries that pass `is_wanted`, after the number `after`. At most 100,000 entries are
    /// read, so a page may have fewer entries than `limit`, or none, although more follow.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn list_filtered(
        &self,
        after: u64,
        limit: usize,
        is_wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<AuditPage, StoreError> {
        let found = filtered_page(Some(after), limit, MAX_FILTERED_ROWS, |after, count| {
            let page = self.list(after.copied().unwrap_or_default(), count)?;
            let (entries, more) = (page.entries.into_iter(), page.next.is_some());
            let rows = entries.map(|entry| (entry.number, Some(entry).filter(|entry| is_wanted(entry))));
            Ok(ScannedRows { rows: rows.collect(), more })
        })?;
        Ok(AuditPage { entries: found.items, next: found.next })
    }

    /// Returns the scan of at most `limit` entries after the number `after`, for [`Store::scan_many`].
    #[must_use]
    pub fn entry_scan_after(after: u64, limit: usize) -> RowScan {
        let after = Some(entry_key(after).to_vec());
        RowScan { table: StoreTable::Audit, prefix: vec![ENTRY_TAG], after, limit }
    }

    /// Returns the number of the last entry; 0 if there is none.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn last_entry_number(&self) -> Result<u64, StoreError> {
        let row = self.store.get(StoreTable::Audit, HEAD_KEY)?;
        let head: AuditHead =
            row.as_deref().map(|row| versioned_json::decode(WHAT, row)).transpose()?.unwrap_or_default();
        Ok(head.number)
    }

    /// Verifies the hash chain of the whole log; returns the number of the first invalid entry, if any. Entries may be
    /// added meanwhile.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn verify(&self) -> Result<Option<u64>, StoreError> {
        let (mut expected, mut sum) = (1_u64, String::new());
        let mut after = entry_key(0).to_vec();
        // Number of the last entry according to the head row, when an earlier scan ended before it. The next scan has
        // to find that entry.
        let mut known_last = 0;
        loop {
            let page =
                self.store.scan(StoreTable::Audit, &[ENTRY_TAG], Some(&after), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let entry: AuditEntry = versioned_json::decode(WHAT, &row.value)?;
                if row.key != entry_key(expected) || entry.number != expected || entry.previous != sum {
                    return Ok(Some(expected));
                }
                expected += 1;
                sum = encode_hex(&Sha256::digest(&row.value));
                after.clone_from(&row.key);
            }
            if !page.more {
                if known_last >= expected {
                    return Ok(Some(expected));
                }
                let row = self.store.get(StoreTable::Audit, HEAD_KEY)?;
                let head: AuditHead = row
                    .as_deref()
                    .map(|row| versioned_json::decode(WHAT, row))
                    .transpose()?
                    .unwrap_or_default();
                if head.number >= expected {
                    known_last = head.number;
                    continue;
                }
                let fits = head.number + 1 == expected && head.sum == sum;
                return Ok((!fits).then_some(expected));
            }
        }
    }
}

fn entry_key(number: u64) -> [u8; 9] {
    let mut key = [ENTRY_TAG; 9];
    if let Some(digits) = key.get_mut(1..) {
        digits.copy_from_slice(&number.to_be_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::open_in_memory;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn add_entry(log: &AuditLog) {
        let (who, what, target) = ("test".to_owned(), "something".to_owned(), "a".to_owned());
        let change = ChangeDescription { at: 1, who, what, target, change: serde_json::Value::Null };
        log.apply_with_entry(&Transaction::new(), &change).unwrap();
    }

    #[test]
    fn a_log_that_grows_during_its_verification_is_valid() {
        let log = AuditLog::new(open_in_memory());
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..500).for_each(|_| add_entry(&log));
                ended.store(true, Ordering::Release);
            });
            while !ended.load(Ordering::Acquire) {
                assert_eq!(log.verify(), Ok(None));
            }
        });
        assert_eq!((log.verify(), log.last_entry_number()), (Ok(None), Ok(500)));
    }

    #[test]
    fn missing_last_entries_are_noticed() {
        let log = AuditLog::new(open_in_memory());
        (0..3).for_each(|_| add_entry(&log));
        for number in [3, 2, 1] {
            log.store.apply(Transaction::new().delete(StoreTable::Audit, entry_key(number))).unwrap();
            assert_eq!(log.verify(), Ok(Some(number)));
        }
    }
}
