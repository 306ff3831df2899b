//! State that the readers and the writer of one open store share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::StoreOptions;
use super::commit_marker::{self, ContentDigest, GroupNumberFile, fingerprint};
use super::directory::StoreDir;
use super::handle::SledHandle;
use super::log;
use super::reserve_file::ReserveFile;
use crate::transaction_group::WritesByKey;
use crate::{StoreError, StoreHealth, row};

/// Minimum interval between attempts to reopen a store that a failure closed.
pub(crate) const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Embedded store on sled: the open database, its directory and the state of its writer.
pub(crate) struct SledEngine {
    /// Open sled database; `None` while it cannot be reopened after a failure. Declared before the field of the
    /// directory, so that the database is closed before the lock of the directory is released.
    pub(crate) sled: RwLock<Option<SledHandle>>,
    /// Lock that the writer takes for each group; another task takes it to pause writes.
    pub(crate) write_lock: Mutex<()>,
    /// Keys that were written since the running copy of all rows began; `None` while no copy runs.
    pub(crate) changed_keys: Mutex<Option<BTreeSet<Vec<u8>>>>,
    /// Number and checksum of the rows that the store must contain.
    pub(crate) content_digest: Mutex<ContentDigest>,
    group_file: GroupNumberFile,
    /// Progress of a running verification; `None` while none runs.
    pub(crate) verify_pass: Mutex<Option<VerifyProgress>>,
    /// Lock that a copy of all rows or a verification holds, so that only one of them runs at a time.
    pub(crate) scan_lock: Mutex<()>,
    /// Time of the last attempt to reopen sled.
    last_reopen: Mutex<Option<Instant>>,
    pub(crate) reserve_file: ReserveFile,
    pub(crate) writer_health: WriterHealth,
    pub(crate) options: StoreOptions,
    pub(crate) dir: StoreDir,
}

impl SledEngine {
    /// Opens the store in the directory. Changes nothing if its files are damaged.
    pub(crate) fn open(folder: StoreDir, options: StoreOptions) -> Result<SledEngine, StoreError> {
        check_files(&folder)?;
        let engine = SledEngine {
            sled: RwLock::new(None),
            write_lock: Mutex::new(()),
            changed_keys: Mutex::new(None),
            scan_lock: Mutex::new(()),
            content_digest: Mutex::new(ContentDigest::default()),
            group_file: GroupNumberFile::open(&folder.group_file_path())?,
            verify_pass: Mutex::new(None),
            last_reopen: Mutex::new(None),
            reserve_file: ReserveFile::new(folder.reserve_file_path(), options.ballast_bytes),
            writer_health: WriterHealth::new(),
            options,
            dir: folder,
        };
        engine.open_database(&mut engine.sled.write())?;
        Ok(engine)
    }

    /// Calls `use_it` with the open sled database; reopens a closed database first, if such an attempt is due.
    pub(crate) fn with_sled<T>(
        &self,
        use_it: impl FnOnce(&SledHandle) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.writer_health.is_database_closed() {
            self.reopen_if_due()?;
        }
        match self.sled.read().as_ref() {
            Some(live) => use_it(live),
            None => Err(self.closed_error()),
        }
    }

    /// Reopens sled if a failure closed it, at most once a second.
    pub(crate) fn reopen_if_due(&self) -> Result<(), StoreError> {
        let mut revived = self.last_reopen.lock();
        if self.sled.read().is_some() {
            return Ok(());
        }
        if revived.is_some_and(|at| at.elapsed() < REOPEN_INTERVAL) {
            return Err(self.closed_error());
        }
        let opened = self.reopen();
        *revived = Some(Instant::now());
        opened
    }

    /// Returns the error of calls while sled is closed.
    fn closed_error(&self) -> StoreError {
        match self.writer_health.write_status() {
            WriteStatus::Full => StoreError::Full,
            _ => StoreError::Io { what: "reopen after a failure", kind: std::io::ErrorKind::NotConnected },
        }
    }

    /// Writes a group of rows and syncs; after `Ok` the rows are durable. The caller must hold `write_lock`.
    pub(crate) fn commit(&self, writes: WritesByKey) -> Result<(), CommitError> {
        let live = self.sled.read();
        let live = live.as_ref().ok_or_else(|| CommitError::Write(self.closed_error()))?;
        if let Some(touched) = self.changed_keys.lock().as_mut() {
            touched.extend(writes.iter().map(|(key, _)| key.clone()));
        }
        let mut tip = *self.content_digest.lock();
        let mut sealed = Vec::with_capacity(writes.len() + 1);
        let mut marks = Vec::with_capacity(writes.len());
        for (key, value) in writes {
            let new = value.map(|value| row::encode_checksummed(&key, &value));
            let old = live.get_encoded(&key).map_err(CommitError::Write)?;
            marks.push((
                old.map(|old| fingerprint(&key, &old)),
                new.as_deref().map(|new| fingerprint(&key, new)),
            ));
            sealed.push((key, new));
        }
        // The counts of the verification change only after all reads, so that a failed read does not leave them half
        // changed.
        let mut survey = self.verify_pass.lock();
        for ((key, _), (old_mark, new_mark)) in sealed.iter().zip(marks) {
            let met =
                survey.as_mut().filter(|survey| survey.is_counted(key)).map(|survey| &mut survey.counted);
            for tip in [Some(&mut tip), met].into_iter().flatten() {
                old_mark.into_iter().for_each(|mark| tip.remove_fingerprint(mark));
                new_mark.into_iter().for_each(|mark| tip.add_fingerprint(mark));
            }
        }
        tip.groups += 1;
        sealed.push((
            commit_marker::CONTENT_DIGEST_KEY.to_vec(),
            Some(row::encode_checksummed(commit_marker::CONTENT_DIGEST_KEY, &tip.to_bytes())),
        ));
        let written = live.write(sealed).and_then(|()| live.flush_to_os()).map_err(CommitError::Write);
        if let Err(fault) = written.and_then(|()| live.sync_to_disk().map_err(CommitError::Sync)) {
            // The running verification is discarded, because its counts may include rows that are not on disk.
            *survey = None;
            return Err(fault);
        }
        *self.content_digest.lock() = tip;
        self.group_file.write(tip.groups);
        Ok(())
    }

    /// Syncs the number of the last group, on a clean shutdown.
    pub(crate) fn sync_group_number(&self) {
        self.group_file.sync();
    }

    /// Loads the commit marker of the newly opened store; returns `Corrupt` if acknowledged commits are missing.
    fn load_marker(&self, live: &SledHandle) -> Result<(), StoreError> {
        let tip = match live.get(commit_marker::CONTENT_DIGEST_KEY)? {
            Some(tip) => ContentDigest::from_bytes(&tip)?,
            None => ContentDigest::default(),
        };
        let noted = GroupNumberFile::read(&self.dir.group_file_path())?;
        if tip.groups < noted {
            let missing = noted - tip.groups;
            return Err(StoreError::corrupt(format!(
                "its log lacks the last {missing} acknowledged commits"
            )));
        }
        *self.content_digest.lock() = tip;
        Ok(())
    }

    /// Closes sled and reopens it from the files on disk; deletes the reserve file if opening needs space. Returns any
    /// error of opening, and `Corrupt` if acknowledged commits are missing; the store then stays closed.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        let mut live = self.sled.write();
        *live = None;
        self.writer_health.closed.store(true, Ordering::Release);
        check_files(&self.dir)?;
        self.open_database(&mut live)
    }

    /// Opens sled, whose files must have been checked, into `live`.
    fn open_database(&self, live: &mut Option<SledHandle>) -> Result<(), StoreError> {
        let start = || SledHandle::open(&self.dir.database_path(), &self.options);
        let opened = match start() {
            Err(StoreError::Full) => self.reserve_file.delete().and_then(|()| start()),
            opened => opened,
        };
        let opened = opened?;
        self.load_marker(&opened)?;
        *live = Some(opened);
        self.writer_health.closed.store(false, Ordering::Release);
        Ok(())
    }
}

/// Checks the files of the database before sled opens them, because sled deletes what follows damage.
fn check_files(folder: &StoreDir) -> Result<(), StoreError> {
    log::check(&folder.database_path(), GroupNumberFile::read(&folder.group_file_path())?)
}

/// Progress of a verification: the rows counted up to a key.
#[derive(Debug, Default)]
pub(crate) struct VerifyProgress {
    /// Cursor: the greatest key that the scan has read so far; `None` before the first row.
    pub(crate) cursor: Option<Vec<u8>>,
    /// Count and checksum of the rows up to the cursor, updated with concurrent writes.
    pub(crate) counted: ContentDigest,
}

impl VerifyProgress {
    fn is_counted(&self, key: &[u8]) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| key <= cursor)
    }
}

/// Error of a commit, by the failed step. After a failed sync, no later write may be acknowledged: the operating
/// system may drop the pages that it could not write, and report the next sync as successful.
#[derive(Debug)]
pub(crate) enum CommitError {
    Write(StoreError),
    Sync(StoreError),
}

/// Write mode of the sled store: ready, disk full, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WriteStatus {
    Ready = 0,
    Full = 1,
    Failed = 2,
}

/// Health of the writer, readable without a lock.
pub(crate) struct WriterHealth {
    origin: Instant,
    /// Start of the writer's current group, in milliseconds after `origin` plus one; 0 if idle.
    busy_since: AtomicU64,
    mode: AtomicU8,
    /// True if sled is closed after a failure.
    closed: AtomicBool,
}

impl WriterHealth {
    pub(crate) fn new() -> WriterHealth {
        WriterHealth {
            origin: Instant::now(),
            busy_since: AtomicU64::new(0),
            mode: AtomicU8::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Records that the writer begins a group of transactions now.
    pub(crate) fn mark_busy(&self) {
        self.busy_since.store(self.elapsed_ms(), Ordering::Release);
    }

    /// Records that the writer has no group of transactions in progress.
    pub(crate) fn mark_idle(&self) {
        self.busy_since.store(0, Ordering::Release);
    }

    /// Returns true if sled is closed after a failure.
    pub(crate) fn is_database_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn write_status(&self) -> WriteStatus {
        match self.mode.load(Ordering::Acquire) {
            0 => WriteStatus::Ready,
            1 => WriteStatus::Full,
            _ => WriteStatus::Failed,
        }
    }

    pub(crate) fn set_write_status(&self, mode: WriteStatus) {
        self.mode.store(mode as u8, Ordering::Release);
    }

    /// Returns the health of the store; a group that runs longer than `stuck_after` makes it `Stuck`.
    pub(crate) fn health(&self, stuck_after: Duration) -> StoreHealth {
        let busy_since = self.busy_since.load(Ordering::Acquire);
        let milliseconds = if busy_since == 0 { 0 } else { self.elapsed_ms().saturating_sub(busy_since) };
        match self.write_status() {
            WriteStatus::Failed => StoreHealth::Failed,
            _ if u128::from(milliseconds) > stuck_after.as_millis() => StoreHealth::Stuck { milliseconds },
            WriteStatus::Full => StoreHealth::Full,
            WriteStatus::Ready if self.is_database_closed() => StoreHealth::Failed,
            WriteStatus::Ready => StoreHealth::Ready,
        }
    }
}
