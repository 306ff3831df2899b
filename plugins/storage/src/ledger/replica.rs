//! Replica of the ledger: one file for each month, to which the blocks of each commit are appended. The file is
//! synced at most [`SYNC_DELAY`] after an append; one sync covers all commits of that interval. The store already has
//! these commits durably. Entries that a power cut removes from the file are written again when the ledger is opened.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use penstock_core::entry_number::{last_number_in_chain, number_before_chain};

use super::extra_entries;
use super::key::{file_name, parse_file_name};
use super::replica_comparison::file_title;
use super::replica_repair::{FoundReplica, ReplicaRepair, find_state};
use super::{EntryBlock, LedgerCommit, LedgerStore};
use crate::{StoreError, permissions};

/// Number of last entries that are compared with the end of the file on opening. It is greater than the number of
/// entries that one commit can have.
const COMPARED_ENTRIES: u64 = 16_384;
/// Maximum time from an append to the replica until its sync to disk.
const SYNC_DELAY: Duration = Duration::from_millis(250);
/// Interval between two attempts to repair files that are behind the store, while no commit does it.
const REPAIR_INTERVAL: Duration = Duration::from_secs(10);
/// Number of unsynced entries from which an append syncs the file at once: well below [`COMPARED_ENTRIES`].
const MAX_UNSYNCED: u64 = 4_096;

/// Maximum number of repair messages that are stored until [`LedgerReplica::take_repairs`] returns them.
const MAX_REPAIRS: usize = 24;

/// Replica of one ledger chain: the month files and their observed state.
#[derive(Debug)]
pub(super) struct LedgerReplica {
    folder: PathBuf,
    chain: u32,
    /// Month of the open replica file, the file, and its length in bytes.
    open: Option<(String, File, u64)>,
    /// Error of the last append or sync if it failed: before the next append, the files are compared with the store.
    behind: Option<StoreError>,
    unsynced: Option<UnsyncedRange>,
    /// Repairs of files from the store, one for each month.
    repairs: Vec<ReplicaRepair>,
}

/// Entries that were appended to the replica file since its last sync.
#[derive(Clone, Copy, Debug)]
struct UnsyncedRange {
    since: Instant,
    /// Number of the last entry of the first unsynced block.
    from: u64,
}

impl LedgerReplica {
    /// Opens the replica of a chain in `folder`, created if missing; reads no file.
    pub(super) fn open(folder: &Path, chain: u32) -> Result<LedgerReplica, StoreError> {
        let failed = |error| StoreError::io("open the directory of the ledger's second copy", &error);
        permissions::create_private_dir_all(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        Ok(LedgerReplica { folder, chain, open: None, behind: None, unsynced: None, repairs: Vec::new() })
    }

    /// Appends the blocks of a commit; returns true on success.
    pub(super) fn append(&mut self, ledger: &LedgerStore, group: &LedgerCommit) -> bool {
        let copied = match self.behind {
            // The store already has this commit, so `catch_up` also appends the commit to the file.
            Some(_) => self.catch_up(ledger),
            None => self.write(ledger, group).and_then(|()| self.sync_if_due(group.new_tip.seq)),
        };
        self.record_result(copied)
    }

    fn record_result(&mut self, copied: Result<(), StoreError>) -> bool {
        self.behind = copied.err();
        if self.behind.is_some() {
            self.open = None;
            self.unsynced = None;
        }
        self.behind.is_none()
    }

    /// Adds repairs; the list is limited in length.
    pub(super) fn add_repairs(&mut self, repairs: Vec<ReplicaRepair>) {
        self.repairs.extend(repairs);
        self.repairs.truncate(MAX_REPAIRS);
    }

    /// Returns the repairs since the last call, and clears the list.
    pub(super) fn take_repairs(&mut self) -> Vec<ReplicaRepair> {
        std::mem::take(&mut self.repairs)
    }

    /// Returns the error that keeps the files behind the store; `None` if they are up to date.
    pub(super) fn error(&self) -> Option<StoreError> {
        self.behind.clone()
    }

    /// Returns the time until the next sync is due, or the next repair of files that are behind the store; `None` if the
    /// files are up to date and synced.
    pub(super) fn time_until_sync(&self) -> Option<Duration> {
        if self.behind.is_some() {
            return Some(REPAIR_INTERVAL);
        }
        self.unsynced.map(|unsynced| SYNC_DELAY.saturating_sub(unsynced.since.elapsed()))
    }

    /// Syncs the appended blocks, or brings files that are behind the store up to date; returns true on success.
    pub(super) fn sync(&mut self, ledger: &LedgerStore) -> bool {
        let synced = match self.behind {
            Some(_) => self.catch_up(ledger),
            None => self.sync_open(),
        };
        self.record_result(synced)
    }

    fn sync_if_due(&mut self, last: u64) -> Result<(), StoreError> {
        let many = |unsynced: UnsyncedRange| last.saturating_sub(unsynced.from) >= MAX_UNSYNCED;
        match self.unsynced {
            Some(unsynced) if unsynced.since.elapsed() >= SYNC_DELAY || many(unsynced) => self.sync_open(),
            _ => Ok(()),
        }
    }

    fn sync_open(&mut self) -> Result<(), StoreError> {
        if self.unsynced.is_none() {
            return Ok(());
        }
        if let Some((_, file, _)) = &self.open {
            file.sync_data().map_err(write_error)?;
        }
        self.unsynced = None;
        Ok(())
    }

    fn write(&mut self, ledger: &LedgerStore, group: &LedgerCommit) -> Result<(), StoreError> {
        for run in group.blocks.chunk_by(|one, next| one.month == next.month) {
            let Some(first) = run.first() else { continue };
            let text = run.iter().map(|block| block.text.as_slice()).collect::<Vec<_>>().concat();
            let end = ledger.month_byte_len(&first.month)?;
            if self.open.as_ref().is_some_and(|(open, ..)| *open != first.month) {
                self.sync_open()?;
            }
            let (file, at) = self.open_month(&first.month)?;
            // A repeated commit may already be in the file. Entries are not appended to a file that another program
            // has changed.
            match end.checked_sub(text.len() as u64) {
                Some(start) if start == *at => {
                    file.write_all_at(&text, start).map_err(write_error)?;
                    *at = end;
                    self.unsynced.get_or_insert(UnsyncedRange { since: Instant::now(), from: first.last });
                }
                _ => return self.catch_up(ledger),
            }
        }
        Ok(())
    }

    /// Returns the open file of a month and its length.
    fn open_month(&mut self, month: &str) -> Result<(&File, &mut u64), StoreError> {
        if self.open.as_ref().is_none_or(|(open, ..)| open != month) {
            let path = month_path(&self.folder, self.chain, month);
            let fresh = !path.exists();
            let file = permissions::open_options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(&path)
                .map_err(write_error)?;
            if fresh {
                sync_dir(&self.folder)?;
            }
            let length = file.metadata().map_err(read_error)?.len();
            self.open = Some((month.to_owned(), file, length));
        }
        match &mut self.open {
            Some((_, file, length)) => Ok((file, length)),
            None => Err(StoreError::Io { what: "open a file of the ledger", kind: ErrorKind::NotFound }),
        }
    }

    /// Brings every file up to date with the store.
    pub(super) fn catch_up(&mut self, ledger: &LedgerStore) -> Result<(), StoreError> {
        self.open = None;
        self.unsynced = None;
        let months = ledger.chain_months(self.chain)?;
        for month in file_months(&self.folder, self.chain)?.iter().filter(|file| !months.contains(file)) {
            self.rename_diverged_file(ledger, month, 0)?;
        }
        for (index, month) in months.iter().enumerate() {
            // Only the last two months may be incomplete, because a commit spans at most two months.
            self.catch_up_month(ledger, month, index + 2 >= months.len())?;
        }
        Ok(())
    }

    /// Renames a file that is longer than the entries of the month in the store, which has `should` bytes of them. If the
    /// file has entries that the database of a fleet lacks, such as after the promotion of a standby, the journal has
    /// them too and writes them again. Without a fleet such entries are an error, since an operator has to decide.
    fn rename_diverged_file(
        &mut self,
        ledger: &LedgerStore,
        month: &str,
        should: u64,
    ) -> Result<(), StoreError> {
        let title = file_title(self.chain, month);
        let path = month_path(&self.folder, self.chain, month);
        let last = ledger.chain_tip(self.chain)?.map_or(0, |tip| tip.seq);
        let has_more = extra_entries::contains_entry_after(&path, should, last)?;
        if has_more && ledger.claim().is_none() {
            return Err(extra_entries_error(&title));
        }
        self.open = None;
        let number = (0_u32..).find(|number| !diverged_path(&path, *number).exists()).unwrap_or_default();
        fs::rename(&path, diverged_path(&path, number)).map_err(write_error)?;
        sync_dir(&self.folder)?;
        let apart = diverged_path(&path, number).display().to_string();
        let extra =
            if has_more { "entries that the database lacks" } else { "bytes that are no further entry" };
        let what = format!("the file of {title} had {extra}; it is {apart} now");
        self.repairs.push(ReplicaRepair { found: FoundReplica::Different, what });
        Ok(())
    }

    fn catch_up_month(&mut self, ledger: &LedgerStore, month: &str, recent: bool) -> Result<(), StoreError> {
        let should = ledger.month_byte_len(month)?;
        if *self.open_month(month)?.1 > should {
            self.rename_diverged_file(ledger, month, should)?;
        }
        let (file, length) = self.open_month(month)?;
        // Files of earlier months were synced long ago, so comparing their lengths is enough. The last two may end
        // with a partial write.
        if *length == should && !recent {
            return Ok(());
        }
        let blocks = last_blocks(ledger, month, should, *length)?;
        let mut at = should - blocks.iter().map(|block| block.text.len() as u64).sum::<u64>();
        let mut torn = None;
        for block in &blocks {
            if torn.is_none() && !contains_at(file, at, &block.text)? {
                torn = Some((at, find_state(file, *length, at, &block.text)?));
            }
            if torn.is_some() {
                file.write_all_at(&block.text, at).map_err(write_error)?;
            }
            at += block.text.len() as u64;
        }
        if torn.is_some() {
            file.sync_all().map_err(write_error)?;
        }
        let before = std::mem::replace(length, should);
        if let Some((at, found)) = torn {
            self.repairs.truncate(MAX_REPAIRS - 1);
            let title = file_title(self.chain, month);
            let what = if before < should {
                format!("the file of {title} had {before} of {should} bytes")
            } else {
                format!("the file of {title} differed from the store after byte {at}")
            };
            self.repairs.push(ReplicaRepair { found, what });
        }
        Ok(())
    }
}

impl Drop for LedgerReplica {
    fn drop(&mut self) {
        self.sync_open().ok();
    }
}

/// Returns the months of the non-empty files of a chain.
pub(super) fn file_months(folder: &Path, chain: u32) -> Result<Vec<String>, StoreError> {
    let files = replica_files(folder)?.into_iter().filter(|(of, _)| *of == chain);
    Ok(files.map(|(_, month)| month).collect())
}

/// Returns the chain numbers of the non-empty files, ascending; a chain is repeated for each of its months.
pub(super) fn file_chains(folder: &Path) -> Result<Vec<u32>, StoreError> {
    Ok(replica_files(folder)?.into_iter().map(|(chain, _)| chain).collect())
}

/// Returns the chain numbers and the months of the non-empty files, ascending.
fn replica_files(folder: &Path) -> Result<Vec<(u32, String)>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(read_error)?;
        let name = entry.file_name();
        let Some((chain, month)) = name.to_str().and_then(parse_file_name) else { continue };
        if entry.metadata().map_err(read_error)?.len() > 0 {
            files.push((chain, month.to_owned()));
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the path of the file with a chain's entries of a month.
pub(super) fn month_path(folder: &Path, chain: u32, month: &str) -> PathBuf {
    folder.join(file_name(chain, month))
}

/// Returns the path under which a file with extra entries is stored.
fn diverged_path(path: &Path, number: u32) -> PathBuf {
    path.with_extension(format!("jsonl.{number}.reverted"))
}

/// Returns the last blocks of a month from the store: the blocks that the file lacks, and at least those of the last
/// commit.
fn last_blocks(
    ledger: &LedgerStore,
    month: &str,
    should: u64,
    length: u64,
) -> Result<Vec<EntryBlock>, StoreError> {
    let start_of_chain = number_before_chain(ledger.chain());
    let last = ledger.tip()?.map_or_else(|| last_number_in_chain(ledger.chain()), |tip| tip.seq);
    let mut back = COMPARED_ENTRIES;
    loop {
        let from = last.saturating_sub(back).max(start_of_chain);
        let mut blocks = Vec::new();
        ledger.for_each_block_in_month(month, from, |block| {
            blocks.push(block.clone());
            Ok::<_, StoreError>(())
        })?;
        let bytes: u64 = blocks.iter().map(|block| block.text.len() as u64).sum();
        let start = should
            .checked_sub(bytes)
            .ok_or_else(|| StoreError::corrupt(format!("the blocks of {month} exceed the bytes written")))?;
        if start <= length || from == start_of_chain {
            return if start <= length { Ok(blocks) } else { Err(missing_blocks_error(month)) };
        }
        back = back.saturating_mul(8);
    }
}

/// Returns true if the file has the given bytes at the offset.
pub(super) fn contains_at(file: &File, offset: u64, text: &[u8]) -> Result<bool, StoreError> {
    let mut there = vec![0; text.len()];
    match file.read_exact_at(&mut there, offset) {
        Ok(()) => Ok(there == text),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(read_error(error)),
    }
}

fn extra_entries_error(month: &str) -> StoreError {
    StoreError::corrupt(format!(
        "the second copy of the ledger has entries of {month} that the store lacks; `penstock credits rebuild` \
         writes the store's ledger again from it"
    ))
}

fn missing_blocks_error(month: &str) -> StoreError {
    StoreError::corrupt(format!(
        "ledger blocks of {month} are missing from the store and from the second copy"
    ))
}

/// Creates the store error for a failed write to the replica.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn write_error(error: std::io::Error) -> StoreError {
    StoreError::io("write the ledger's second copy", &error)
}

/// Creates the store error for a failed read of the replica.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
pub(super) fn read_error(error: std::io::Error) -> StoreError {
    StoreError::io("read the ledger's second copy", &error)
}

fn sync_dir(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(write_error)
}
