//! Durable engine: a wrapper of sled 0.34.7 that compensates for its defects.
//!
//! This version of sled acknowledges writes that a power cut loses (its `flush` does not sync), does not open after
//! some crashes (half-written snapshots), deadlocks when flushed asynchronously, and keeps large values in files it
//! never syncs. It deletes what follows damage in its log. The wrapper therefore uses one tree, one writer thread, its
//! own sync after each flush, a staging directory and cleanup, small values only, a checksum in every row, a check of
//! the files before sled opens them, a count that detects missing rows, a reserve file for a full disk, and compaction
//! and repair by copying.

mod commit_marker;
mod compact;
mod directory;
mod engine;
mod handle;
mod log;
mod repair;
mod reserve_file;
mod scan;
mod writer;

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use self::directory::StoreDir;
use self::engine::{SledEngine, WriteStatus};
use self::handle::SledHandle;
use self::writer::{QUEUE_CAPACITY, WriteJob};
use crate::store::{PageBuilder, prefix_end};
use crate::{
    RowPage, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome, row,
};

pub use self::compact::{CompactionOutcome, compact};
pub use self::repair::{RepairLoss, RepairOutcome, repair, repair_with_progress};

/// Options of a store on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Size in bytes of the reserve file, which is deleted when the disk is full; 0 for none. Default 64 MiB.
    pub ballast_bytes: u64,
    /// Time limit for a group of transactions; if a group takes longer, the health of the store is `Stuck`. Default 5
    /// s.
    pub stuck_after: Duration,
    /// Timeout of `apply`, which then returns `Stuck`. Default 30 s.
    pub apply_timeout: Duration,
    /// Size of sled's page cache in bytes. Default 8 MiB: data needed by requests is in memory anyway, and ledger
    /// blocks would fill any cache and are rarely read.
    pub cache_bytes: u64,
    /// Log size in bytes above which opening compacts the store, provided that the log is more than four times the
    /// size of its rows and the disk has space for a second log. Default 64 MiB.
    pub compact_over_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            ballast_bytes: 64 << 20,
            stuck_after: Duration::from_secs(5),
            apply_timeout: Duration::from_secs(30),
            cache_bytes: 8 << 20,
            compact_over_bytes: 64 << 20,
        }
    }
}

/// Opens the store in the directory `path`, created if missing.
///
/// # Errors
/// Returns `Locked` if another process has it open, `Full` if there is neither free space nor a reserve file to delete,
/// `Corrupt` if sled rejects its files or if rows or acknowledged commits are missing, `Format` if they are of another
/// version, `Io` otherwise.
pub fn open(path: &Path, options: StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let folder = StoreDir::acquire(path)?;
    if !folder.has_store() {
        folder.check_never_used()?;
        let side = folder.clear_staging_dir()?;
        let live = SledHandle::open(&side, &options)?;
        live.flush_to_os()?;
        drop(live);
        folder.replace_database(&side)?;
    }
    let engine = SledEngine::open(folder, options)?;
    let row_bytes = scan::check_missing_rows(&engine)?;
    compact::compact_if_due(&engine, row_bytes)?;
    match engine.reserve_file.create_if_missing() {
        Err(StoreError::Full) => engine.writer_health.set_write_status(WriteStatus::Full),
        secured => secured?,
    }
    SledStore::start(engine).map(|store| Arc::new(store) as Arc<dyn Store>)
}

struct SledStore {
    engine: Arc<SledEngine>,
    /// Sender of transactions to the writer thread; `None` while closing.
    jobs: Option<SyncSender<WriteJob>>,
    writer: Option<JoinHandle<()>>,
}

impl SledStore {
    fn start(engine: SledEngine) -> Result<SledStore, StoreError> {
        let engine = Arc::new(engine);
        let (jobs, waiting) = sync_channel(QUEUE_CAPACITY);
        let shared = Arc::clone(&engine);
        let writer = Builder::new()
            .name("store writer".to_owned())
            .spawn(move || writer::run(&shared, &waiting))
            .map_err(|error| StoreError::io("start its writer thread", &error))?;
        Ok(SledStore { engine, jobs: Some(jobs), writer: Some(writer) })
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.engine.sync_group_number();
    }
}

impl std::fmt::Debug for SledStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SledStore").field("health", &self.health()).finish_non_exhaustive()
    }
}

impl Store for SledStore {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.engine.with_sled(|live| live.get(&row::disk_key(space, key)))
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let prefix_key = row::disk_key(space, prefix);
        let after_key = after.filter(|after| *after >= prefix).map(|after| row::disk_key(space, after));
        let from = match &after_key {
            Some(after) => Bound::Excluded(after.as_slice()),
            None => Bound::Included(prefix_key.as_slice()),
        };
        let mut page = PageBuilder::new(limit);
        self.engine.with_sled(|live| {
            live.scan(from, |key, sealed| {
                if !key.starts_with(&prefix_key) || !page.has_capacity() {
                    return Ok(false);
                }
                page.push(key.get(1..).unwrap_or_default(), row::decode_checksummed(key, sealed)?);
                Ok(true)
            })
        })?;
        Ok(page.finish())
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let prefix_key = row::disk_key(space, prefix);
        let past = prefix_end(&prefix_key);
        let before = before.map(|before| row::disk_key(space, before));
        let upto = match (&before, &past) {
            (Some(before), Some(past)) => Bound::Excluded(before.min(past).as_slice()),
            (Some(end), None) | (None, Some(end)) => Bound::Excluded(end.as_slice()),
            (None, None) => Bound::Unbounded,
        };
        let mut page = PageBuilder::new(limit);
        self.engine.with_sled(|live| {
            live.scan_back(upto, |key, sealed| {
                if !key.starts_with(&prefix_key) || !page.has_capacity() {
                    return Ok(false);
                }
                page.push(key.get(1..).unwrap_or_default(), row::decode_checksummed(key, sealed)?);
                Ok(true)
            })
        })?;
        Ok(page.finish())
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        batch.check_limits()?;
        let (answer, answered) = sync_channel(1);
        let gone =
            || StoreError::Io { what: "write, because it is closing", kind: std::io::ErrorKind::BrokenPipe };
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(WriteJob { batch, reply: answer }).map_err(|_| gone())?;
        match answered.recv_timeout(self.engine.options.apply_timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(StoreError::Stuck),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        scan::copy_all_rows(&self.engine, sink)
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        scan::verify(&self.engine, on_rows_read)
    }

    fn health(&self) -> StoreHealth {
        self.engine.writer_health.health(self.engine.options.stuck_after)
    }
}

#[cfg(test)]
mod tests;
