//! Compaction: sled's log can grow to many times the rows in it, so now and then the rows move to a new one.

use std::path::Path;

use super::Options;
use super::copy::walk;
use super::engine::{Engine, Writes};
use super::folder::{Folder, remove_all, sync_tree};
use super::live::{Live, SEGMENT};
use crate::{StoreError, row};

/// The log may be this many times its rows.
const SLACK: u64 = 4;
/// Bytes written per batch while copying.
const PORTION: usize = 1 << 20;

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of the log before.
    pub before: u64,
    /// Bytes of the log after.
    pub after: u64,
}

/// Moves the rows of the store in the folder `path` to a new log. The store must not be open.
///
/// A power cut at any moment leaves the old log or the new one, each complete.
///
/// # Errors
/// Same as [`super::open`]; `Corrupt` if a row is damaged: repair first.
pub fn compact(path: &Path, options: Options) -> Result<Compacted, StoreError> {
    let folder = Folder::claim(path)?;
    if !folder.has_store() {
        return Err(StoreError::Format { what: "there is no store in this folder".to_owned() });
    }
    let engine = Engine::start(folder, options)?;
    replace(&engine)
}

/// Compacts a store that is being opened, if its log is too large for its rows.
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
        // Not worth refusing to open for: a store with a damaged row, or on a full disk, still reads.
        Err(StoreError::Corrupt { .. } | StoreError::Full) => engine.with(|_| Ok(())),
        replaced => replaced.map(|_| ()),
    }
}

/// Whether the disk has room for a second log of so many bytes of rows: it is begun with whole segments, and the
/// ballast may have to be taken beside it.
fn fits(engine: &Engine, rows: u64) -> bool {
    let needed = rows.saturating_add(2 * SEGMENT as u64).saturating_add(engine.options.ballast_bytes);
    // A disk that does not tell is tried.
    engine.folder.room().map_or(true, |room| room >= needed)
}

fn replace(engine: &Engine) -> Result<Compacted, StoreError> {
    let before = engine.with(Live::log_bytes)?;
    let side = engine.folder.side()?;
    if let Err(why) = copy(engine, &side) {
        // It is worthless, and on a full disk the room that it took is what the store needs to go on.
        remove_all(&side)?;
        return Err(why);
    }
    *engine.live.write() = None;
    engine.folder.promote(&side)?;
    engine.reopen()?;
    Ok(Compacted { before, after: engine.with(Live::log_bytes)? })
}

/// Copies every row to a new log in the folder `side`, closed and synced at the end: what the disk refuses, it
/// refuses here, while the store is still open.
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
