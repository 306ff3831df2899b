//! Compaction: sled's log can grow to many times the size of its rows; compaction moves the rows to a new log.

use std::path::Path;

use super::Options;
use super::copy::walk;
use super::engine::{Engine, Writes};
use super::folder::{Folder, remove_all, sync_tree};
use super::live::{Live, SEGMENT};
use crate::{StoreError, row};

/// Maximum ratio of log size to row size.
const SLACK: u64 = 4;
/// Number of bytes written per sled batch while copying.
const PORTION: usize = 1 << 20;

/// Result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Log size in bytes before.
    pub before: u64,
    /// Log size in bytes after.
    pub after: u64,
}

/// Moves the rows of the store in the directory `path` to a new log. The store must not be open.
///
/// A power cut at any moment leaves either the old log or the new one, complete.
///
/// # Errors
/// Same as [`super::open`]; `Corrupt` if a row is damaged, which needs a repair first.
pub fn compact(path: &Path, options: Options) -> Result<Compacted, StoreError> {
    let folder = Folder::claim(path)?;
    if !folder.has_store() {
        return Err(StoreError::Format { what: "there is no store in this directory".to_owned() });
    }
    let engine = Engine::start(folder, options)?;
    replace(&engine)
}

/// Compacts a store while it is opened, if its log is too large for its rows.
pub(crate) fn if_due(engine: &Engine) -> Result<(), StoreError> {
    let log = engine.with(Live::log_bytes)?;
    if log <= engine.options.compact_over_bytes {
        return Ok(());
    }
    let mut rows = 0_u64;
    walk(engine, |key, sealed| {
        rows += (key.len() + sealed.len()) as u64;
        Ok(())
    })?;
    if log <= SLACK * rows.max(1) || !fits(engine, rows) {
        return Ok(());
    }
    match replace(engine) {
        // No reason to fail the opening: a store with a damaged row, or on a full disk, is still readable.
        Err(StoreError::Corrupt { .. } | StoreError::Full) => engine.with(|_| Ok(())),
        replaced => replaced.map(|_| ()),
    }
}

/// Returns true if the disk has space for a second log with this many bytes of rows, its whole segments, and the
/// reserve file.
fn fits(engine: &Engine, rows: u64) -> bool {
    let needed = rows.saturating_add(2 * SEGMENT as u64).saturating_add(engine.options.ballast_bytes);
    // If the free space is unknown, compaction is attempted.
    engine.folder.room().map_or(true, |room| room >= needed)
}

fn replace(engine: &Engine) -> Result<Compacted, StoreError> {
    let before = engine.with(Live::log_bytes)?;
    let side = engine.folder.side()?;
    if let Err(why) = copy(engine, &side) {
        // The new log is useless, and on a full disk the store needs its space.
        remove_all(&side)?;
        return Err(why);
    }
    *engine.live.write() = None;
    engine.folder.promote(&side)?;
    engine.reopen()?;
    Ok(Compacted { before, after: engine.with(Live::log_bytes)? })
}

/// Copies every row to a new log in the directory `side`, then closes and syncs it: disk errors occur here, while the
/// store is still open.
fn copy(engine: &Engine, side: &Path) -> Result<(), StoreError> {
    let new = Live::start(side, &engine.options)?;
    let mut portion: Writes = Vec::new();
    let mut bytes = 0;
    walk(engine, |key, sealed| {
        bytes += key.len() + sealed.len();
        row::open(key, sealed)?;
        portion.push((key.to_vec(), Some(sealed.to_vec())));
        if bytes >= PORTION {
            bytes = 0;
            return new.write(std::mem::take(&mut portion));
        }
        Ok(())
    })?;
    new.write(portion)?;
    new.flush()?;
    drop(new);
    sync_tree(side)
}
