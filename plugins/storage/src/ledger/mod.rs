//! Ledger in a store: blocks of entries, balances and the tip, written together, and a replica of the blocks in one
//! file a month, which messages call the second copy.
//!
//! A block is a part of a commit, as lines of text that this module does not parse. Each commit is one guarded
//! transaction, so it is never applied twice. Once it is durable in the store, its blocks are appended to the month's
//! file, before [`LedgerStore::append`] returns. The file is synced within 250 ms, see [`LedgerStore::replica_sync_due`].
//!
//! ```text
//! key of a block   `2026-11` | number of its last entry (8 bytes, big-endian)  →  its text, compressed
//! key of the tip   meta `ledger`                                              →  [`LedgerTip`]
//! key of a month   meta `ledger/2026-11`                                      →  bytes of its file
//! file of a month  <directory>/2026-11.jsonl                                  =  its blocks in order
//! ```
//! A commit may contain rows of other modules: a charge and the state of the charged work are written together or not
//! at all. The store is written first, so after a crash a file may lack its end but never has more than the store; the
//! missing end is written when the ledger is opened. A file with more entries proves that the store lost some; then the
//! ledger is not opened, see [`LedgerStore::clear`].

mod compression;
mod key;
mod reading;
mod record;
mod replica;
mod rollups;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::compression::decompress;
use self::key::{NAME_PREFIX, block_key, month_key, name_key};
pub use self::record::{BalanceRecord, LedgerTip};
use self::replica::LedgerReplica;
use crate::{
    MAX_KEY_BYTES, MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES, RowSum, Store, StoreError,
    StoreTable, Transaction,
};

const TIP_KEY: &[u8] = b"ledger";

/// Maximum size of one block, in bytes.
pub const MAX_BLOCK_BYTES: usize = MAX_VALUE_BYTES;
/// Block size in bytes at which a new block should begin; LZ4 reduces it to a third. sled caches hundreds of recently
/// written pages regardless of its cache limit (it checks a 256th of them after 64 accesses), and a page has up to 17
/// rows.
pub const TARGET_BLOCK_BYTES: usize = 6 * 1024;
/// Maximum bytes of the blocks of one commit.
pub const MAX_COMMIT_BYTES: usize = MAX_TRANSACTION_BYTES / 3;
/// Maximum number of blocks, balances, names, rollups and further rows of one commit together.
pub const MAX_COMMIT_ROWS: usize = MAX_OPERATIONS / 2;
/// Maximum bytes of the further rows of one commit.
pub const MAX_EXTRA_ROW_BYTES: usize = MAX_TRANSACTION_BYTES / 6;

/// Block of entries that are added together, all of one month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBlock {
    /// Month of the entries, such as `2026-11`.
    pub month: String,
    /// Number of its last entry.
    pub last: u64,
    /// Text of the block, a line for each entry.
    pub text: Vec<u8>,
}

/// Row of another module that is written with a commit: the state of the work that is charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Value of the row; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl RowWrite {
    /// Returns the bytes counted against [`MAX_EXTRA_ROW_BYTES`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    /// Returns true if the row is within the store's size limits.
    #[must_use]
    pub fn is_within_limits(&self) -> bool {
        self.key.len() <= MAX_KEY_BYTES
            && self.value.as_ref().is_none_or(|value| value.len() <= MAX_VALUE_BYTES)
    }
}

/// Required state of a row of another module, checked with a commit: the proof that the writer still owns the work that
/// the commit is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFence {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Required value of the row; `None` if the row must not exist.
    pub value: Option<Vec<u8>>,
}

/// Commit to the ledger. Without blocks the tip does not change: `before` and `after` are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerCommit {
    /// Required tip of the ledger before the commit; `None` before the first commit.
    pub previous_tip: Option<LedgerTip>,
    /// Tip of the ledger after the commit.
    pub new_tip: LedgerTip,
    /// Blocks in order.
    pub blocks: Vec<EntryBlock>,
    /// Changes of balances, by account. Only a commit with blocks may have some: its tip proves that they are added once.
    pub balance_changes: Vec<(String, BalanceRecord)>,
    /// Names used by the entries, with the number of each entry, see [`LedgerStore::entry_number`]. A name that is in use
    /// already fails the commit.
    pub names: Vec<(String, u64)>,
    /// Keys and values of the changed usage rollups.
    pub rollups: Vec<(Vec<u8>, Vec<u8>)>,
    /// Rows that must have a given state; otherwise the commit fails.
    pub fences: Vec<RowFence>,
    /// Further rows written with the commit, in order.
    pub extra_rows: Vec<RowWrite>,
}

/// Result of a commit that is durable in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendOutcome {
    /// True if the replica has the commit too. If not, the next commit or opening adds it.
    pub copied: bool,
}

/// Ledger of a store.
#[derive(Debug)]
pub struct LedgerStore {
    store: Arc<dyn Store>,
    replica: Option<Mutex<LedgerReplica>>,
    replica_dir: Option<PathBuf>,
}

impl LedgerStore {
    /// Opens the ledger in `store` with its replica in the directory `copies`, created if missing; `None` for an
    /// in-memory store. Brings the replica up to date with the store.
    ///
    /// # Errors
    /// Returns `Corrupt` if the replica has entries that the store lacks, `Full` or `Io` if the files cannot be
    /// updated, and the errors of [`Store::scan`].
    pub fn open(store: Arc<dyn Store>, copies: Option<&Path>) -> Result<LedgerStore, StoreError> {
        let folder = copies.map(Path::to_owned);
        let copies = copies.map(LedgerReplica::open).transpose()?;
        let ledger = LedgerStore { store, replica: copies.map(Mutex::new), replica_dir: folder };
        if let Some(copies) = &ledger.replica {
            copies.lock().catch_up(&ledger)?;
        }
        Ok(ledger)
    }

    /// Opens the ledger in `store` for reading, without a replica.
    #[must_use]
    pub fn open_read_only(store: Arc<dyn Store>) -> LedgerStore {
        LedgerStore { store, replica: None, replica_dir: None }
    }

    /// Opens the ledger in `store` for reading and for comparison with the replica in the directory `copies`; writes to
    /// neither.
    #[must_use]
    pub fn open_with_replica(store: Arc<dyn Store>, copies: &Path) -> LedgerStore {
        LedgerStore { store, replica: None, replica_dir: Some(copies.to_owned()) }
    }

    /// Returns the repairs of the replica from the store since the last call: a sentence for each month.
    #[must_use]
    pub fn take_repairs(&self) -> Vec<String> {
        self.replica.as_ref().map(|copies| copies.lock().take_repairs()).unwrap_or_default()
    }

    /// Brings the replica up to date with the store, which another process may have written to.
    ///
    /// # Errors
    /// Same as [`LedgerStore::open`].
    pub fn update_replica(&self) -> Result<(), StoreError> {
        self.replica.as_ref().map_or(Ok(()), |copies| copies.lock().catch_up(self))
    }

    /// Returns the tip of the ledger; `None` before its first entry.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn tip(&self) -> Result<Option<LedgerTip>, StoreError> {
        self.store.get(StoreTable::Meta, TIP_KEY)?.map(|row| LedgerTip::from_row(&row)).transpose()
    }

    /// Adds a commit. After `Ok` the commit survives a power cut. A retry with the same commit after any error is safe:
    /// a commit that was stored after all is detected, and one without blocks writes the same rows again.
    ///
    /// # Errors
    /// Returns `Guard` if the ledger has another tip, a name is in use or a fence does not hold, `TooLarge`, and the errors of [`Store::apply`].
    pub fn append(&self, group: &LedgerCommit) -> Result<AppendOutcome, StoreError> {
        let batch = self.to_transaction(group)?;
        match self.store.apply(batch) {
            Err(StoreError::Guard { .. }) if self.tip()? == Some(group.new_tip) => {}
            applied => applied?,
        }
        let copied = self.replica.as_ref().is_none_or(|copies| copies.lock().append(self, group));
        Ok(AppendOutcome { copied })
    }

    /// Returns the time until [`LedgerStore::sync_replica`] is due; `None` if the replica is synced. Later commits sync it
    /// by themselves; this is for periods without commits.
    #[must_use]
    pub fn replica_sync_due(&self) -> Option<Duration> {
        self.replica.as_ref().and_then(|copies| copies.lock().sync_due())
    }

    /// Syncs the replica; returns true on success. After a failure the next commit or opening repairs it.
    pub fn sync_replica(&self) -> bool {
        self.replica.as_ref().is_none_or(|copies| copies.lock().sync())
    }

    /// Returns the error because of which the replica lags behind the store; `None` if it does not.
    #[must_use]
    pub fn replica_error(&self) -> Option<StoreError> {
        self.replica.as_ref().and_then(|copies| copies.lock().behind())
    }

    fn to_transaction(&self, group: &LedgerCommit) -> Result<Transaction, StoreError> {
        if group.blocks.is_empty() && !group.balance_changes.is_empty() {
            return Err(StoreError::corrupt("a commit changes balances without an entry"));
        }
        let mut batch = match &group.previous_tip {
            None => Transaction::new().require_absent(StoreTable::Meta, TIP_KEY),
            Some(tip) => Transaction::new().require_value(StoreTable::Meta, TIP_KEY, tip.to_row()?),
        };
        if !group.blocks.is_empty() {
            batch = batch.put(StoreTable::Meta, TIP_KEY, group.new_tip.to_row()?);
        }
        for fence in &group.fences {
            batch = match &fence.value {
                Some(value) => batch.require_value(fence.table, fence.key.as_slice(), value.as_slice()),
                None => batch.require_absent(fence.table, fence.key.as_slice()),
            };
        }
        let mut months: Vec<(&str, u64)> = Vec::new();
        for sheet in &group.blocks {
            batch = batch.put(
                StoreTable::Ledger,
                block_key(&sheet.month, sheet.last)?,
                compression::compress(&sheet.text),
            );
            let bytes = sheet.text.len() as u64;
            match months.iter_mut().find(|(month, _)| *month == sheet.month) {
                Some((_, length)) => *length += bytes,
                None => months.push((&sheet.month, self.month_bytes(&sheet.month)? + bytes)),
            }
        }
        for (month, length) in months {
            batch = batch.put(StoreTable::Meta, month_key(month), length.to_le_bytes());
        }
        for (account, change) in &group.balance_changes {
            batch = batch.sum(StoreTable::Balances, account.as_bytes(), RowSum::Balance(*change));
        }
        for (name, number) in &group.names {
            let key = name_key(name);
            batch = batch.require_absent(StoreTable::Idempotency, key.as_slice()).put(
                StoreTable::Idempotency,
                key,
                number.to_le_bytes(),
            );
        }
        for (key, value) in &group.rollups {
            batch = batch.put(StoreTable::Usage, key.as_slice(), value.as_slice());
        }
        for row in &group.extra_rows {
            batch = match &row.value {
                Some(value) => batch.put(row.table, row.key.as_slice(), value.as_slice()),
                None => batch.delete(row.table, row.key.as_slice()),
            };
        }
        Ok(batch)
    }

    /// Returns the balance of an account.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn balance(&self, account: &str) -> Result<Option<BalanceRecord>, StoreError> {
        let row = self.store.get(StoreTable::Balances, account.as_bytes())?;
        row.map(|row| BalanceRecord::from_row(&row)).transpose()
    }

    /// Returns all balances, by account.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn balances(&self) -> Result<Vec<(String, BalanceRecord)>, StoreError> {
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(StoreTable::Balances, b"", after.as_deref(), crate::MAX_PAGE_ROWS)?;
            for row in &page.rows {
                let account = String::from_utf8(row.key.clone())
                    .map_err(|_| StoreError::corrupt("the name of an account is not UTF-8"))?;
                all.push((account, BalanceRecord::from_row(&row.value)?));
            }
            match page.rows.into_iter().next_back() {
                Some(row) if page.more => after = Some(row.key),
                _ => return Ok(all),
            }
        }
    }

    /// Returns the number of the entry that used a name; `None` if the name is unused.
    ///
    /// # Errors
    /// Same as [`Store::get`].
    pub fn entry_number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        self.store.get(StoreTable::Idempotency, &name_key(name))?.map(|row| parse_number(&row)).transpose()
    }

    /// Compares the replica with the store byte by byte; returns a sentence for each month that differs, and none
    /// without a replica.
    ///
    /// # Errors
    /// Same as [`Store::scan`], and `Io` if a file cannot be read.
    pub fn compare_replica(&self) -> Result<Vec<String>, StoreError> {
        self.replica_dir
            .as_ref()
            .map_or_else(|| Ok(Vec::new()), |folder| replica::compare_files(folder, self))
    }

    /// Removes the ledger from the store, so that it can be rebuilt from its replica, which is not changed. A crash in
    /// between leaves a ledger that cannot be opened; then this must be repeated.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn clear(store: &dyn Store) -> Result<(), StoreError> {
        let mut batch = Transaction::new().delete(StoreTable::Meta, TIP_KEY);
        for (space, prefix) in [
            (StoreTable::Ledger, &b""[..]),
            (StoreTable::Usage, b""),
            (StoreTable::Balances, b""),
            (StoreTable::Meta, b"ledger/"),
            (StoreTable::Idempotency, NAME_PREFIX),
        ] {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = store.scan(space, prefix, after.as_deref(), MAX_OPERATIONS / 2)?;
                for row in &page.rows {
                    batch = batch.delete(space, row.key.as_slice());
                }
                store.apply(std::mem::take(&mut batch))?;
                match page.rows.into_iter().next_back() {
                    Some(row) if page.more => after = Some(row.key),
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

fn parse_number(row: &[u8]) -> Result<u64, StoreError> {
    let bytes = row.try_into().map_err(|_| StoreError::corrupt("a number has a wrong length"))?;
    Ok(u64::from_le_bytes(bytes))
}
