//! Repair of a damaged store: copies the readable rows to a new store. The damaged store is not changed.

use std::fs;
use std::ops::Bound;
use std::path::Path;

use super::Options;
use super::engine::Writes;
use super::folder::{Folder, remove_all};
use super::live::Live;
use super::tip::{self, Tip, is_row, mark};
use crate::{Space, StoreError, private, row};

/// Number of bytes written per sled batch.
const PORTION: usize = 1 << 20;

/// Result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Number of rows in the new store.
    pub saved: u64,
    /// Number of rows whose checksum did not match.
    pub damaged: u64,
    /// True if sled iterated over all its rows; if false, there may be further rows that were not read.
    pub whole: bool,
}

/// File name prefixes to leave out, attempt by attempt: sled can rebuild its snapshot from the log, and its settings
/// always have default values.
const ATTEMPTS: [&[&str]; 3] = [&[], &["snap"], &["snap", "conf"]];

/// Copies the readable rows of the store in the directory `from` to a new store in the directory `to`.
///
/// # Errors
/// Returns `Format` if `to` has a store or `from` has none, `Corrupt` if sled cannot open any of it, and `Locked`,
/// `Full` or `Io` as [`super::open`].
pub fn repair(from: &Path, to: &Path, options: Options) -> Result<Repaired, StoreError> {
    repair_with(from, to, options, &mut |_| {})
}

/// Repairs like [`repair`], and calls `saved` with the number of rows of each chunk; rows of discarded attempts count
/// too.
///
/// # Errors
/// Same as [`repair`].
pub fn repair_with(
    from: &Path,
    to: &Path,
    options: Options,
    saved: &mut dyn FnMut(u64),
) -> Result<Repaired, StoreError> {
    let (from, to) = (Folder::claim(from)?, Folder::claim(to)?);
    if !from.has_store() || to.has_store() {
        let what = "a repair needs a directory with a store and one without".to_owned();
        return Err(StoreError::Format { what });
    }
    let mut best: Option<(Repaired, &[&str])> = None;
    for without in ATTEMPTS {
        let Ok(repaired) = attempt(&from, &to, without, &options, saved) else { continue };
        if best.is_none_or(|(best, _)| (repaired.saved, repaired.whole) > (best.saved, best.whole)) {
            best = Some((repaired, without));
        }
    }
    let Some((_, without)) = best else {
        return Err(StoreError::corrupt("sled cannot open its files"));
    };
    let repaired = attempt(&from, &to, without, &options, saved)?;
    to.promote(&to.live().with_extension("new"))?;
    Ok(repaired)
}

/// Builds the new store in the staging directory, from a copy of the damaged one without the files whose names start
/// with `without`.
fn attempt(
    from: &Folder,
    to: &Folder,
    without: &[&str],
    options: &Options,
    saved: &mut dyn FnMut(u64),
) -> Result<Repaired, StoreError> {
    let side = to.side()?;
    let copy = side.with_extension("salvage");
    remove_all(&copy)?;
    copy_files(&from.live(), &copy, without)?;
    let old = Live::start(&copy, options)?;
    let new = Live::start(&side, options)?;
    let repaired = salvage(&old, &new, saved);
    drop((old, new));
    remove_all(&copy)?;
    repaired
}

fn copy_files(from: &Path, to: &Path, without: &[&str]) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("copy its files", &error);
    private::folder(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let left_out = without.iter().any(|start| name.to_string_lossy().starts_with(start));
        if !left_out && entry.file_type().map_err(failed)?.is_file() {
            fs::copy(entry.path(), to.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Scans upwards from the first row; after an error, also downwards from the last row and upwards from the start of
/// each table.
fn salvage(old: &Live, new: &Live, saved: &mut dyn FnMut(u64)) -> Result<Repaired, StoreError> {
    let mut saving = Saving { new, saved, portion: Vec::new(), bytes: 0, repaired: Repaired::default() };
    saving.repaired.whole = old.walk(Bound::Unbounded, |key, sealed| saving.take(key, sealed)).is_ok();
    if !saving.repaired.whole {
        let _ = old.walk_back(std::ops::Bound::Unbounded, |key, sealed| saving.take(key, sealed));
        for space in Space::ALL {
            let _ = old.walk(Bound::Included(&[space.tag()]), |key, sealed| saving.take(key, sealed));
        }
    }
    saving.write()?;
    let mut tip = Tip::default();
    new.walk(Bound::Unbounded, |key, sealed| {
        tip.add(mark(key, sealed));
        Ok(true)
    })?;
    new.write([(tip::KEY.to_vec(), Some(row::seal(tip::KEY, &tip.to_bytes())))])?;
    new.flush()?;
    Ok(Repaired { saved: tip.rows, ..saving.repaired })
}

struct Saving<'a> {
    new: &'a Live,
    /// Callback with the number of rows of each chunk.
    saved: &'a mut dyn FnMut(u64),
    portion: Writes,
    bytes: usize,
    repaired: Repaired,
}

impl Saving<'_> {
    fn take(&mut self, key: &[u8], sealed: &[u8]) -> Result<bool, StoreError> {
        match row::open(key, sealed) {
            _ if !is_row(key) => {}
            Ok(_) => {
                self.bytes += key.len() + sealed.len();
                self.portion.push((key.to_vec(), Some(sealed.to_vec())));
                if self.bytes >= PORTION {
                    self.write()?;
                }
            }
            Err(_) => self.repaired.damaged += 1,
        }
        Ok(true)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        (self.saved)(self.portion.len() as u64);
        self.new.write(std::mem::take(&mut self.portion))
    }
}
