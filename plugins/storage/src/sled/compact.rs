//! Compaction: sled's log can grow to many times the size of its rows; compaction moves the rows to a new log.

use std::path::Path;

use super::StoreOptions;
use super::directory::{StoreDir, remove_all, sync_tree};
use super::engine::SledEngine;
use super::handle::{SEGMENT_BYTES, SledHandle};
use super::scan::for_each_row;
use crate::transaction_group::WritesByKey;
use crate::{StoreError, row};

/// Ratio of the log size to the total size of the rows. Above it, opening a store compacts the log.
const MAX_LOG_RATIO: u64 = 4;
/// Number of bytes written per sled batch while copying.
const CHUNK_BYTES: usize = 1 << 20;

/// Result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Size of sled's log before the compaction, in bytes.
    pub bytes_before: u64,
    /// Size of sled's log after the compaction, in bytes.
    pub bytes_after: u64,
}

/// Moves the rows of the store in the directory `path` to a new log. The store must not be open.
///
/// A power cut at any moment leaves either the old log or the new one, complete.
///
/// # Errors
/// Same as [`super::open`]; `InvalidArgument` if the directory has no store, `Corrupt` if a row is damaged, which needs
/// a repair first.
pub fn compact(path: &Path, options: StoreOptions) -> Result<CompactionOutcome, StoreError> {
    let folder = StoreDir::acquire(path)?;
    if !folder.has_store() {
        return Err(StoreError::InvalidArgument { what: "there is no store in this directory" });
    }
    let engine = SledEngine::open(folder, options)?;
    compact_log(&engine)
}

/// Compacts a store while it is opened, if its log is too large for its rows, which have `rows` bytes.
pub(crate) fn compact_if_due(engine: &SledEngine, rows: u64) -> Result<(), StoreError> {
    let log = engine.with_sled(SledHandle::log_bytes)?;
    if log <= engine.options.compact_over_bytes {
        return Ok(());
    }
    if log <= MAX_LOG_RATIO * rows.max(1) || !has_disk_space(engine, rows) {
        return Ok(());
    }
    match compact_log(engine) {
        // A damaged row or a full disk does not prevent opening, because the store is still readable.
        Err(StoreError::Corrupt { .. } | StoreError::Full) => engine.with_sled(|_| Ok(())),
        replaced => replaced.map(|_| ()),
    }
}

/// Returns true if the disk has space for a second log that contains `rows` bytes of rows, rounded up to whole
/// segments, and for the reserve file.
fn has_disk_space(engine: &SledEngine, rows: u64) -> bool {
    let needed = rows.saturating_add(2 * SEGMENT_BYTES as u64).saturating_add(engine.options.ballast_bytes);
    // Compaction is tried if the free disk space is unknown.
    engine.dir.free_bytes().map_or(true, |free| free >= needed)
}

fn compact_log(engine: &SledEngine) -> Result<CompactionOutcome, StoreError> {
    let before = engine.with_sled(SledHandle::log_bytes)?;
    let side = engine.dir.clear_staging_dir()?;
    if let Err(why) = copy_rows(engine, &side) {
        // The incomplete new log is removed, because the store needs this space if the disk is full.
        remove_all(&side)?;
        return Err(why);
    }
    *engine.sled.write() = None;
    engine.dir.replace_database(&side)?;
    engine.reopen()?;
    Ok(CompactionOutcome { bytes_before: before, bytes_after: engine.with_sled(SledHandle::log_bytes)? })
}

/// Copies every row to a new log in the directory `side`, then closes and syncs it: so disk errors occur here, while
/// the old store is still open and usable.
fn copy_rows(engine: &SledEngine, side: &Path) -> Result<(), StoreError> {
    let new = SledHandle::open(side, &engine.options)?;
    let mut portion: WritesByKey = Vec::new();
    let mut bytes = 0;
    for_each_row(engine, |key, sealed| {
        bytes += key.len() + sealed.len();
        row::decode_checksummed(key, sealed)?;
        portion.push((key.to_vec(), Some(sealed.to_vec())));
        if bytes >= CHUNK_BYTES {
            bytes = 0;
            return new.write(std::mem::take(&mut portion));
        }
        Ok(())
    })?;
    new.write(portion)?;
    new.flush_to_os()?;
    drop(new);
    sync_tree(side)
}
