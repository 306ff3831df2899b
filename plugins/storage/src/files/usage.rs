//! Bytes that the files of a fleet use, as counters that change in the transactions that add and remove files.
//!
//! ```text
//! files  `u/`      →  counter: bytes of all files; present while the counters are complete
//! files  `u/` key  →  counter: bytes of the key's files
//! ```
//! A process without a fleet counts the bytes in memory and removes the row `u/`. The next fleet then counts all
//! files again.

use super::{FileRecord, FileStore, USAGE_PREFIX};
use crate::ledger::CounterDelta;
use crate::{MAX_PAGE_ROWS, StoreError, StoreTable, Transaction, counter_row, parse_counter};
use std::collections::BTreeMap;

/// Bytes used by files, or limits on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedBytes {
    /// Bytes of all files.
    pub all: u64,
    /// Bytes of the files of one key.
    pub key: u64,
}

/// Result of an attempt to add a file within the limits on the used bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileInsertOutcome {
    /// The file was added to the store.
    Added,
    /// The file was not added, because all files together would exceed their limit.
    TotalLimitExceeded,
    /// The file was not added, because the files of the key would exceed the limit of the key.
    KeyLimitExceeded,
}

impl FileStore {
    /// Returns the used bytes of all files, and of the files of an API key.
    ///
    /// # Errors
    /// Same as [`crate::Store::get_many`].
    pub fn used_bytes(&self, key: &str) -> Result<UsedBytes, StoreError> {
        let keys = [usage_key(""), usage_key(key)];
        let rows = self.store.get_many(StoreTable::Files, &[&keys[0], &keys[1]])?;
        let bytes = |index: usize| {
            let counter = parse_counter(rows.get(index).and_then(Option::as_deref))?;
            Ok::<_, StoreError>(u64::try_from(counter).unwrap_or_default())
        };
        Ok(UsedBytes { all: bytes(0)?, key: bytes(1)? })
    }

    /// Adds a file if the used bytes of all files and of its key stay within `limits`, even if other processes add
    /// files at the same time.
    ///
    /// # Errors
    /// Same as [`FileStore::add`].
    pub fn add_within_limits(
        &self,
        file: &FileRecord,
        limits: UsedBytes,
    ) -> Result<FileInsertOutcome, StoreError> {
        let insertion = Self::insert_operations(file)?;
        let (step, by) = (insertion.operations().len(), signed(file.bytes));
        let batch = insertion
            .add_to_counter(StoreTable::Files, usage_key(""), by, None, Some(signed(limits.all)))
            .add_to_counter(StoreTable::Files, usage_key(&file.key), by, None, Some(signed(limits.key)));
        match self.store.apply(batch) {
            Ok(()) => Ok(FileInsertOutcome::Added),
            Err(StoreError::Guard { step: failed }) if failed == step => {
                Ok(FileInsertOutcome::TotalLimitExceeded)
            }
            Err(StoreError::Guard { step: failed }) if failed > step => {
                Ok(FileInsertOutcome::KeyLimitExceeded)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a file and its bytes from the counters; returns false if it does not exist.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn delete_and_update_usage(&self, file: &FileRecord) -> Result<bool, StoreError> {
        let changes = Self::usage_deltas(&file.key, signed(file.bytes).saturating_neg());
        let batch = changes.into_iter().fold(Self::remove_operations(file), |batch, change| {
            batch.add_to_counter(change.table, change.key, change.delta, None, None)
        });
        match self.store.apply(batch) {
            Err(StoreError::Guard { .. }) => Ok(false),
            applied => applied.map(|()| true),
        }
    }

    /// Returns the changes of the usage counters for a file of the key `key` that grows by `delta` bytes.
    #[must_use]
    pub fn usage_deltas(key: &str, delta: i64) -> Vec<CounterDelta> {
        let change = |key| CounterDelta { table: StoreTable::Files, key, delta };
        vec![change(usage_key("")), change(usage_key(key))]
    }

    /// Counts the bytes of all files, unless the counters are complete. Several processes may count at the same time,
    /// but no process may add files meanwhile.
    ///
    /// # Errors
    /// Same as [`crate::Store::scan`] and [`crate::Store::apply`].
    pub fn build_usage_counters(&self) -> Result<(), StoreError> {
        if self.store.get(StoreTable::Files, &usage_key(""))?.is_some() {
            return Ok(());
        }
        let (mut all, mut keys) = (0_i64, BTreeMap::<Vec<u8>, i64>::new());
        let mut after: Option<String> = None;
        loop {
            let page = self.list_all(after.as_deref(), MAX_PAGE_ROWS)?;
            for file in &page.files {
                all = all.saturating_add(signed(file.bytes));
                let key = keys.entry(usage_key(&file.key)).or_default();
                *key = key.saturating_add(signed(file.bytes));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.replace_usage(all, keys)
    }

    fn replace_usage(&self, all: i64, mut keys: BTreeMap<Vec<u8>, i64>) -> Result<(), StoreError> {
        let stale = self.usage_keys()?.into_iter().filter(|key| !keys.contains_key(key));
        let mut rows: Vec<(Vec<u8>, Option<i64>)> = stale.map(|key| (key, None)).collect();
        rows.extend(std::mem::take(&mut keys).into_iter().map(|(key, bytes)| (key, Some(bytes))));
        let first = || Transaction::new().require_absent(StoreTable::Files, usage_key(""));
        for page in rows.chunks(MAX_PAGE_ROWS) {
            let batch = page.iter().fold(first(), |batch, (key, bytes)| match bytes {
                Some(bytes) => batch.put(StoreTable::Files, key.as_slice(), counter_row(*bytes)),
                None => batch.delete(StoreTable::Files, key.as_slice()),
            });
            if !self.apply_first(batch)? {
                return Ok(());
            }
        }
        self.apply_first(first().put(StoreTable::Files, usage_key(""), counter_row(all))).map(drop)
    }

    /// Applies one transaction of the count; returns false if another process has completed the count.
    fn apply_first(&self, batch: Transaction) -> Result<bool, StoreError> {
        match self.store.apply(batch) {
            Err(StoreError::Guard { .. }) => Ok(false),
            applied => applied.map(|()| true),
        }
    }

    /// Returns the row keys of the counters of all API keys.
    fn usage_keys(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let (mut keys, mut after) = (Vec::new(), usage_key(""));
        loop {
            let page = self.store.scan(StoreTable::Files, USAGE_PREFIX, Some(&after), MAX_PAGE_ROWS)?;
            keys.extend(page.rows.into_iter().map(|row| row.key));
            match keys.last() {
                Some(last) if page.more => after.clone_from(last),
                _ => return Ok(keys),
            }
        }
    }

    /// Marks the counters as incomplete, because the process counts in memory.
    ///
    /// # Errors
    /// Same as [`crate::Store::apply`].
    pub fn invalidate_usage(&self) -> Result<(), StoreError> {
        match self.store.get(StoreTable::Files, &usage_key(""))? {
            Some(_) => self.store.apply(Transaction::new().delete(StoreTable::Files, usage_key(""))),
            None => Ok(()),
        }
    }
}

fn usage_key(key: &str) -> Vec<u8> {
    [USAGE_PREFIX, key.as_bytes()].concat()
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
