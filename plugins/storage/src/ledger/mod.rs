//! Ledger in a store: blocks of entries, balances and tips, written together, and a replica of the blocks in one file
//! for each month. Messages to operators call the replica "the second copy".
//!
//! A block is a part of a commit, as lines of text, of which this module reads only the numbers of entries. Each commit
//! is one guarded transaction, so it is never applied twice. Once it is durable in the store, its blocks are appended to
//! the month's file, before [`LedgerStore::append`] returns. The file is synced within 250 ms, see
//! [`LedgerStore::time_until_replica_sync`].
//!
//! Each process that writes has a chain of entries of its own, see [`ChainClaim`]. A process without a fleet writes
//! chain 0. The number of an entry begins with its chain, see [`penstock_core::entry_number`]; balances, names and
//! rollups are shared by all chains.
//!
//! ```text
//! key of a block   `2026-11` | number of its last entry (8 bytes, big-endian)  →  its text, compressed
//! key of a tip     meta `ledger`, of chain k > 0 meta `ledger#k`              →  [`LedgerTip`]
//! key of a journal meta `ledger/journal/<k>`              →  [`JournalPosition`]
//! key of a month   meta `ledger/2026-11`, of chain k > 0 `ledger/2026-11#k`   →  bytes of its file
//! file of a month  <directory>/2026-11.jsonl, of chain k > 0 `2026-11.k.jsonl` =  its blocks in order
//! ```
//! A commit may contain rows of other modules: a charge and the state of the charged work are written together or not
//! at all. The store is written first, so after a crash a replica file may lack its last entries but never has more
//! than the store; the missing entries are written when the ledger is opened. A file with more entries than the store
//! proves that the store lost some; then the ledger is not opened, see [`LedgerStore::clear`]. A file with more bytes
//! that are no further entry is renamed and written again.

mod balances;
mod chains;
mod claim;
mod commit;
mod compression;
mod extra_entries;
mod fences;
pub mod journal;
mod journal_position;
mod key;
mod reading;
mod record;
mod replica;
mod replica_comparison;
mod replica_repair;
mod rollups;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::claim::ChainClaim;
pub use self::commit::{AppendOutcome, CommitConflict, EntryBlock, LedgerCommit, RowFence, RowWrite};
pub use self::compression::decompress;
pub use self::fences::CounterDelta;
pub use self::journal_position::JournalPosition;
pub use self::key::parse_file_name;
pub use self::record::{BalanceRecord, LedgerTip};
use self::replica::LedgerReplica;
use self::replica_comparison::{ExpectedReplica, compare_files};
pub use self::replica_repair::{FoundReplica, ReplicaRepair};
use crate::audit::AuditLog;
use crate::{MAX_OPERATIONS, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES, Store, StoreError};

/// Maximum size of one block, in bytes.
pub const MAX_BLOCK_BYTES: usize = MAX_VALUE_BYTES;
/// Block size in bytes at which a new block should begin; LZ4 reduces a block to a third of this. The size is small
/// because of the cache of sled: it retains hundreds of recently written pages regardless of its limit (only a 256th
/// of them is checked after 64 accesses), and a page has up to 17 rows.
pub const TARGET_BLOCK_BYTES: usize = 6 * 1024;
/// Maximum bytes of the blocks of one commit.
pub const MAX_COMMIT_BYTES: usize = MAX_TRANSACTION_BYTES / 3;
/// Maximum number of blocks, balances, pools, names, rollups and further rows of one commit together.
pub const MAX_COMMIT_ROWS: usize = MAX_OPERATIONS / 2;
/// Maximum bytes of the further rows of one commit.
pub const MAX_EXTRA_ROWS_BYTES: usize = MAX_TRANSACTION_BYTES / 6;

/// Ledger of a store, open for one chain, to which this process writes.
#[derive(Debug)]
pub struct LedgerStore {
    store: Arc<dyn Store>,
    chain: u32,
    /// Claim of the chain by a member of a fleet; `None` if no other process writes.
    claim: Option<ChainClaim>,
    replica: Option<Mutex<LedgerReplica>>,
    replica_dir: Option<PathBuf>,
    /// Length of the month that was written last, as of the last commit; `None` until it has been read.
    last_length: Mutex<Option<MonthLength>>,
}

/// Total uncompressed bytes of the blocks of a month, in one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MonthLength {
    month: String,
    bytes: u64,
}

impl LedgerStore {
    /// Opens the ledger in `store` for a process that writes alone, with its replica in the directory `copies`, created
    /// if missing; `None` for an in-memory store. Brings the replica of all chains up to date with the store.
    ///
    /// # Errors
    /// Returns `Corrupt` if the replica has entries that the store lacks, `Full` or `Io` if the files cannot be
    /// updated, and the errors of [`Store::scan`].
    pub fn open(store: Arc<dyn Store>, copies: Option<&Path>) -> Result<LedgerStore, StoreError> {
        let ledger = LedgerStore::open_with(store, 0, None, copies)?;
        let Some(folder) = copies else { return Ok(ledger) };
        let mut chains: Vec<u32> = ledger.chains()?.into_iter().map(|(chain, _)| chain).collect();
        chains.extend(replica::file_chains(folder)?);
        chains.sort_unstable();
        chains.dedup();
        for chain in chains.into_iter().filter(|chain| *chain != 0) {
            let other = ledger.open_inactive_chain(chain)?;
            if let Some(replica) = &ledger.replica {
                replica.lock().add_repairs(other.take_replica_repairs());
            }
        }
        Ok(ledger)
    }

    /// Opens the ledger in `store` for a member of a fleet, which writes the claimed chain, with the replica of that
    /// chain.
    ///
    /// # Errors
    /// Same as [`LedgerStore::open`].
    pub fn open_member(
        store: Arc<dyn Store>,
        copies: Option<&Path>,
        claim: ChainClaim,
    ) -> Result<LedgerStore, StoreError> {
        LedgerStore::open_with(store, claim.chain(), Some(claim), copies)
    }

    /// Opens another chain, which no process writes, and brings its replica up to date.
    ///
    /// # Errors
    /// Same as [`LedgerStore::open`].
    pub fn open_inactive_chain(&self, chain: u32) -> Result<LedgerStore, StoreError> {
        LedgerStore::open_with(self.store.clone(), chain, None, self.replica_dir.as_deref())
    }

    /// Opens the ledger for writing a further chain that this process has claimed, without a replica.
    #[must_use]
    pub fn open_claimed_chain(&self, claim: ChainClaim) -> LedgerStore {
        LedgerStore {
            chain: claim.chain(),
            claim: Some(claim),
            ..LedgerStore::open_read_only(self.store.clone())
        }
    }

    fn open_with(
        store: Arc<dyn Store>,
        chain: u32,
        claim: Option<ChainClaim>,
        copies: Option<&Path>,
    ) -> Result<LedgerStore, StoreError> {
        let folder = copies.map(Path::to_owned);
        let copies = copies.map(|folder| LedgerReplica::open(folder, chain)).transpose()?;
        let ledger = LedgerStore {
            chain,
            claim,
            replica: copies.map(Mutex::new),
            replica_dir: folder,
            ..LedgerStore::open_read_only(store)
        };
        ledger.update_replica()?;
        Ok(ledger)
    }

    /// Opens the ledger in `store` for reading, without a replica.
    #[must_use]
    pub fn open_read_only(store: Arc<dyn Store>) -> LedgerStore {
        LedgerStore {
            store,
            chain: 0,
            claim: None,
            replica: None,
            replica_dir: None,
            last_length: Mutex::default(),
        }
    }

    /// Opens the ledger in `store` for reading and for a comparison with the replica in the directory `copies`. Writes
    /// neither to the store nor to the replica.
    #[must_use]
    pub fn open_for_comparison(store: Arc<dyn Store>, copies: &Path) -> LedgerStore {
        LedgerStore { replica_dir: Some(copies.to_owned()), ..LedgerStore::open_read_only(store) }
    }

    /// Returns the chain that this process writes.
    #[must_use]
    pub const fn chain(&self) -> u32 {
        self.chain
    }

    /// Returns the claim of the chain that this process writes; `None` for a process that writes alone.
    #[must_use]
    pub const fn claim(&self) -> Option<&ChainClaim> {
        self.claim.as_ref()
    }

    /// Returns the store of the ledger.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the repairs of the replica from the store since the last call, one for each month.
    #[must_use]
    pub fn take_replica_repairs(&self) -> Vec<ReplicaRepair> {
        self.replica.as_ref().map(|copies| copies.lock().take_repairs()).unwrap_or_default()
    }

    /// Brings the replica up to date with the store, which another process may have written to.
    ///
    /// # Errors
    /// Same as [`LedgerStore::open`].
    pub fn update_replica(&self) -> Result<(), StoreError> {
        *self.last_length.lock() = None;
        self.replica.as_ref().map_or(Ok(()), |copies| copies.lock().catch_up(self))
    }

    /// Writes a commit to the store, and appends its blocks to the replica. After `Ok` the commit survives a power
    /// cut. A retry with the same commit after any error is safe: the method detects a commit that was stored in
    /// spite of the error; a commit without blocks writes the same rows again.
    ///
    /// # Errors
    /// Returns `Guard` if the ledger has another tip, a name is in use, a fence does not hold or the claim is lost, see
    /// [`LedgerStore::commit_conflict`]; `TooLarge`, and the errors of [`Store::apply`].
    pub fn append(&self, group: &LedgerCommit) -> Result<AppendOutcome, StoreError> {
        let mut lengths = self.month_lengths_after(&group.blocks)?;
        let batch = self.to_transaction(group, &lengths)?;
        let known = self.last_length.lock().take();
        let applied = match &*group.audited {
            [] => self.store.apply(batch),
            audited => AuditLog::new(self.store.clone()).apply_with_entries(&batch, audited),
        };
        match applied {
            // An earlier attempt was applied. `lengths` is not cached, because it may have been computed after that
            // attempt.
            Err(StoreError::Guard { step }) if self.is_applied(group, step)? => {}
            Ok(()) => *self.last_length.lock() = lengths.pop().or(known),
            Err(error) => return Err(error),
        }
        #[cfg(feature = "inject")]
        fail::fail_point!("charges_committed", !group.spent.is_empty(), |_| std::process::abort());
        let copied = self.replica.as_ref().is_none_or(|copies| copies.lock().append(self, group));
        Ok(AppendOutcome { replicated: copied })
    }

    /// Returns true if the head of the audit log can be read. Commits with audit entries need it.
    #[must_use]
    pub fn is_audit_log_readable(&self) -> bool {
        AuditLog::new(self.store.clone()).last_entry_number().is_ok()
    }

    /// Returns the time until [`LedgerStore::sync_replica`] is due; `None` if the replica is up to date and synced. Each
    /// commit syncs the replica if a sync is due, so the caller has to sync it only if no further commit follows.
    #[must_use]
    pub fn time_until_replica_sync(&self) -> Option<Duration> {
        self.replica.as_ref().and_then(|copies| copies.lock().time_until_sync())
    }

    /// Syncs the replica, and repairs it if it is behind the store; returns true on success. After a failure the next
    /// call, commit or opening repairs it.
    pub fn sync_replica(&self) -> bool {
        self.replica.as_ref().is_none_or(|copies| copies.lock().sync(self))
    }

    /// Returns the error that makes the replica lag behind the store; `None` if the replica is up to date.
    #[must_use]
    pub fn replica_error(&self) -> Option<StoreError> {
        self.replica.as_ref().and_then(|copies| copies.lock().error())
    }

    /// Compares the replica with the store byte by byte; returns a sentence for each month that differs, and none
    /// without a replica. A member of a fleet has a replica of its own chain only. If several members have written to
    /// a chain, its file may lack the last entries, because another member may have written them to its own folder.
    ///
    /// # Errors
    /// Same as [`Store::scan`], and `Io` if a file cannot be read.
    pub fn compare_replica(&self) -> Result<Vec<String>, StoreError> {
        let Some(folder) = &self.replica_dir else { return Ok(Vec::new()) };
        if let Some(claim) = &self.claim {
            return compare_files(folder, self, claim.chain(), ExpectedReplica::Complete);
        }
        let mut chains: Vec<u32> = self.chains()?.into_iter().map(|(chain, _)| chain).collect();
        let expected = if chains.len() > 1 { ExpectedReplica::Partial } else { ExpectedReplica::Complete };
        chains.extend(replica::file_chains(folder)?);
        chains.sort_unstable();
        chains.dedup();
        let mut findings = Vec::new();
        for chain in chains {
            findings.extend(compare_files(folder, self, chain, expected)?);
        }
        Ok(findings)
    }
}

fn parse_number(row: &[u8]) -> Result<u64, StoreError> {
    let bytes = row.try_into().map_err(|_| StoreError::corrupt("a number has a wrong length"))?;
    Ok(u64::from_le_bytes(bytes))
}
