//! Repair of a damaged store: copies the readable rows to a new store. The damaged store is not changed.

use std::fs;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::Path;

use super::StoreOptions;
use super::commit_marker::{self, ContentDigest, fingerprint, is_caller_row};
use super::directory::{StoreDir, remove_all};

use super::handle::SledHandle;
use crate::transaction_group::WritesByKey;
use crate::{StoreError, StoreTable, permissions, row};

/// Number of bytes written per sled batch.
const CHUNK_BYTES: usize = 1 << 20;

/// Result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairOutcome {
    /// Number of rows in the new store.
    pub saved: u64,
    /// Number of damaged rows; after an error of sled, which makes it read some rows again, a row may count repeatedly.
    pub damaged: u64,
    /// True if sled iterated over all its rows; if false, there may be further rows that were not read.
    pub complete: bool,
}

/// Prefixes of the names of files that are not copied, one list for each attempt. sled can rebuild its snapshot from
/// the log, and its settings have default values here.
const ATTEMPTS: [&[&str]; 3] = [&[], &["snap"], &["snap", "conf"]];

/// Copies the readable rows of the store in the directory `from` to a new store in the directory `to`.
///
/// # Errors
/// Returns `InvalidArgument` if `to` has a store or `from` has none, `Corrupt` if sled cannot open any of it, `Full` if
/// the new store or the copy of the damaged one does not fit on the disk, `Io` if the disk fails, and `Locked` as
/// [`super::open`].
pub fn repair(from: &Path, to: &Path, options: StoreOptions) -> Result<RepairOutcome, StoreError> {
    repair_with_progress(from, to, options, &mut |_| {})
}

/// Repairs like [`repair`], and calls `saved` with the number of rows of each chunk; rows of discarded attempts count
/// too.
///
/// # Errors
/// Same as [`repair`].
pub fn repair_with_progress(
    from: &Path,
    to: &Path,
    options: StoreOptions,
    saved: &mut dyn FnMut(u64),
) -> Result<RepairOutcome, StoreError> {
    let (from, to) = (StoreDir::acquire(from)?, StoreDir::acquire(to)?);
    if !from.has_store() || to.has_store() {
        let what = "a repair needs a directory with a store and one without";
        return Err(StoreError::InvalidArgument { what });
    }
    let mut best: Option<(RepairOutcome, &[&str])> = None;
    let mut disk_error = None;
    for without in ATTEMPTS {
        match try_repair(&from, &to, without, &options, saved) {
            Ok(repaired) => {
                let outcome = |repaired: RepairOutcome| (repaired.saved, repaired.complete);
                if best.is_none_or(|(best, _)| outcome(repaired) > outcome(best)) {
                    best = Some((repaired, without));
                }
            }
            Err(StoreError::Full) => return Err(StoreError::Full),
            // The next attempt may still succeed: perhaps the disk fails only for a file that it does not copy.
            Err(error) if is_disk_error(&error) => drop(disk_error.get_or_insert(error)),
            Err(_) => {}
        }
    }
    let Some((_, without)) = best else {
        return Err(disk_error.unwrap_or_else(|| StoreError::corrupt("sled cannot open its files")));
    };
    let repaired = try_repair(&from, &to, without, &options, saved)?;
    to.replace_database(&to.database_path().with_extension("new"))?;
    Ok(repaired)
}

/// Returns true for an error of the disk, and false for the errors by which sled reports damage.
const fn is_disk_error(error: &StoreError) -> bool {
    let StoreError::Io { kind, .. } = error else { return false };
    !matches!(
        kind,
        ErrorKind::Other
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::NotFound
    )
}

/// Builds the new store in the staging directory, from a copy of the damaged one without the files whose names start
/// with `without`. After an error the new store and the copy are removed, because they take disk space.
fn try_repair(
    from: &StoreDir,
    to: &StoreDir,
    without: &[&str],
    options: &StoreOptions,
    saved: &mut dyn FnMut(u64),
) -> Result<RepairOutcome, StoreError> {
    let side = to.clear_staging_dir()?;
    let copy = side.with_extension("salvage");
    remove_all(&copy)?;
    let repaired = copy_files(&from.database_path(), &copy, without).and_then(|()| {
        let old = SledHandle::open(&copy, options)?;
        let new = SledHandle::open(&side, options)?;
        copy_readable_rows(&old, &new, saved)
    });
    remove_all(&copy)?;
    if repaired.is_err() {
        remove_all(&side)?;
    }
    repaired
}

fn copy_files(from: &Path, to: &Path, without: &[&str]) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("copy its files", &error);
    permissions::create_private_dir_all(to).map_err(failed)?;
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
fn copy_readable_rows(
    old: &SledHandle,
    new: &SledHandle,
    saved: &mut dyn FnMut(u64),
) -> Result<RepairOutcome, StoreError> {
    let mut saving = RowSalvager {
        new,
        saved,
        chunk: Vec::new(),
        bytes: 0,
        write_error: None,
        repaired: RepairOutcome::default(),
    };
    let scanned = old.scan(Bound::Unbounded, |key, sealed| saving.add_row(key, sealed));
    saving.repaired.complete = scanned.is_ok();
    if !saving.repaired.complete {
        let _ = old.scan_back(Bound::Unbounded, |key, sealed| saving.add_row(key, sealed));
        for space in StoreTable::ALL {
            let _ = old.scan(Bound::Included(&[space.tag()]), |key, sealed| saving.add_row(key, sealed));
        }
    }
    saving.flush()?;
    let mut tip = ContentDigest::default();
    new.scan(Bound::Unbounded, |key, sealed| {
        tip.add_fingerprint(fingerprint(key, sealed));
        Ok(true)
    })?;
    new.write([(
        commit_marker::CONTENT_DIGEST_KEY.to_vec(),
        Some(row::encode_checksummed(commit_marker::CONTENT_DIGEST_KEY, &tip.to_bytes())),
    )])?;
    new.flush_to_os()?;
    Ok(RepairOutcome { saved: tip.rows, ..saving.repaired })
}

struct RowSalvager<'a> {
    new: &'a SledHandle,
    /// Callback with the number of rows of each chunk.
    saved: &'a mut dyn FnMut(u64),
    chunk: WritesByKey,
    bytes: usize,
    /// First error of the new store. It does not mean that the old store is damaged. The rows of the chunk that
    /// failed are missing from the new store.
    write_error: Option<StoreError>,
    repaired: RepairOutcome,
}

impl RowSalvager<'_> {
    fn add_row(&mut self, key: &[u8], sealed: &[u8]) -> Result<bool, StoreError> {
        match row::decode_checksummed(key, sealed) {
            _ if !is_caller_row(key) => {}
            Ok(_) => {
                self.bytes += key.len() + sealed.len();
                self.chunk.push((key.to_vec(), Some(sealed.to_vec())));
                if self.bytes >= CHUNK_BYTES {
                    self.flush()?;
                }
            }
            Err(_) => self.repaired.damaged += 1,
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        if let Some(error) = &self.write_error {
            return Err(error.clone());
        }
        self.bytes = 0;
        (self.saved)(self.chunk.len() as u64);
        let written = self.new.write(std::mem::take(&mut self.chunk));
        self.write_error = written.as_ref().err().cloned();
        written
    }
}
