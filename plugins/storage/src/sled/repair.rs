//! Repair of a damaged store: copies the readable rows to a new store. The damaged store is not changed.

use std::fs;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::Path;

use super::StoreOptions;
use super::commit_marker::{self, ContentDigest, GroupNumberFile, fingerprint, is_caller_row};
use super::directory::{StoreDir, remove_all};
use super::handle::SledHandle;
use super::log;
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
    /// Loss of committed rows; `None` if the saved rows are proven to be those of the last commit.
    pub loss: Option<RepairLoss>,
}

/// Difference of the saved rows from those that were committed. Rows that are not missing may be in an older state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairLoss {
    /// Number of rows after the last commit of which a record was found; `None` if there is no such record.
    pub committed_rows: Option<u64>,
    /// Number of commits after the newest one whose marker was read. Single rows of them may be saved.
    pub commits: u64,
}

/// Way to read the damaged store.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    log: LogCopy,
    /// Prefixes of the names of files that are not copied. sled can rebuild its snapshot from the log, and its
    /// settings have default values here.
    without: &'static [&'static str],
}

/// Log that an attempt reads.
#[derive(Clone, Copy, Debug)]
enum LogCopy {
    /// Log up to the first damaged part.
    AsIs,
    /// Log without its damaged parts.
    Bridged,
}

const ATTEMPTS: [Attempt; 5] = [
    Attempt { log: LogCopy::AsIs, without: &[] },
    Attempt { log: LogCopy::Bridged, without: &[] },
    Attempt { log: LogCopy::Bridged, without: &["snap", "conf"] },
    Attempt { log: LogCopy::AsIs, without: &["snap"] },
    Attempt { log: LogCopy::AsIs, without: &["snap", "conf"] },
];

/// Rows that an attempt saved, with the commit that they belong to.
#[derive(Clone, Copy, Debug)]
struct Salvage {
    outcome: RepairOutcome,
    /// Number of the last commit whose rows were read.
    commits: u64,
}

impl Salvage {
    /// Returns the key by which the best attempt is chosen: that without a loss, or else that with the latest commits.
    fn rank(&self) -> impl Ord + use<> {
        let RepairOutcome { saved, complete, loss, .. } = self.outcome;
        (loss.is_none(), self.commits, saved, complete)
    }
}

/// Commits of the damaged store, as far as they are known without sled.
#[derive(Clone, Copy, Debug)]
struct CommitRecord {
    /// Newest marker in the log; `None` if none was found.
    newest: Option<ContentDigest>,
    /// Number of the last commit that is known to be acknowledged.
    acknowledged: u64,
}

impl CommitRecord {
    fn read(from: &StoreDir) -> CommitRecord {
        // Without a readable log, the number of the last commit still shows a loss.
        let newest = log::find_newest_marker(&from.database_path()).unwrap_or_default();
        let noted = GroupNumberFile::read(&from.group_file_path()).unwrap_or_default();
        // The newest commit may have been incomplete at a crash; those before it were complete.
        let acknowledged = newest.map_or(0, |newest| newest.groups.saturating_sub(1)).max(noted);
        CommitRecord { newest, acknowledged }
    }

    /// Returns the loss if the rows in `found` are not those of the commit `marker`, which is the last one that sled
    /// read.
    fn loss(&self, marker: Option<ContentDigest>, found: ContentDigest) -> Option<RepairLoss> {
        let last = marker.unwrap_or_default();
        if last.groups >= self.acknowledged && (last.rows, last.sum) == (found.rows, found.sum) {
            return None;
        }
        Some(RepairLoss {
            committed_rows: marker.max(self.newest).map(|newest| newest.rows),
            commits: self.acknowledged.saturating_sub(last.groups),
        })
    }
}

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
    let record = CommitRecord::read(&from);
    let mut run = |attempt| try_repair(&from, &to, attempt, record, &options, saved);
    let mut best: Option<(Salvage, Attempt)> = None;
    let mut disk_error = None;
    for attempt in ATTEMPTS {
        match run(attempt) {
            Ok(salvage) if salvage.outcome.loss.is_none() && salvage.outcome.complete => {
                to.replace_database(&to.database_path().with_extension("new"))?;
                return Ok(salvage.outcome);
            }
            Ok(salvage) if best.is_none_or(|(best, _)| salvage.rank() > best.rank()) => {
                best = Some((salvage, attempt));
            }
            Ok(_) => {}
            Err(StoreError::Full) => return Err(StoreError::Full),
            // The next attempt may still succeed: perhaps the disk fails only for a file that it does not copy.
            Err(error) if is_disk_error(&error) => drop(disk_error.get_or_insert(error)),
            Err(_) => {}
        }
    }
    let Some((_, attempt)) = best else {
        return Err(disk_error.unwrap_or_else(|| StoreError::corrupt("sled cannot open its files")));
    };
    let salvage = run(attempt)?;
    to.replace_database(&to.database_path().with_extension("new"))?;
    Ok(salvage.outcome)
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

/// Builds the new store in the staging directory, from a copy of the damaged one. After an error the new store and the
/// copy are removed, because they take disk space.
fn try_repair(
    from: &StoreDir,
    to: &StoreDir,
    attempt: Attempt,
    record: CommitRecord,
    options: &StoreOptions,
    saved: &mut dyn FnMut(u64),
) -> Result<Salvage, StoreError> {
    let side = to.clear_staging_dir()?;
    let copy = side.with_extension("salvage");
    remove_all(&copy)?;
    let repaired = copy_files(&from.database_path(), &copy, attempt.without).and_then(|()| {
        if let LogCopy::Bridged = attempt.log {
            log::bridge_gaps(&copy)?;
        }
        let old = SledHandle::open(&copy, options)?;
        let new = SledHandle::open(&side, options)?;
        copy_readable_rows(&old, &new, record, saved)
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
    record: CommitRecord,
    saved: &mut dyn FnMut(u64),
) -> Result<Salvage, StoreError> {
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
    let marker = old.get(commit_marker::CONTENT_DIGEST_KEY).ok().flatten();
    let marker = marker.and_then(|marker| ContentDigest::from_bytes(&marker).ok());
    let outcome = RepairOutcome { saved: tip.rows, loss: record.loss(marker, tip), ..saving.repaired };
    Ok(Salvage { outcome, commits: marker.unwrap_or_default().groups })
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
