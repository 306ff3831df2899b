//! State that the readers and the writer of one open store share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::Options;
use super::ballast::Ballast;
use super::folder::Folder;
use super::live::Live;
use super::tip::{self, Note, Tip, mark};
use crate::{Health, StoreError, row};

/// Minimum interval between attempts to reopen a store that a failure closed.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Writes by disk key; `None` removes the row.
pub(crate) type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// State of an open store.
pub(crate) struct Engine {
    /// Open sled database; `None` while it cannot be reopened after a failure. Declared before the directory, so that
    /// it is closed before the lock is released.
    pub(crate) live: RwLock<Option<Live>>,
    /// Lock held while a group is written; holding it pauses writes.
    pub(crate) writing: Mutex<()>,
    /// Keys written since a copy began; `None` while no copy runs.
    pub(crate) touched: Mutex<Option<BTreeSet<Vec<u8>>>>,
    /// Expected contents of the store.
    pub(crate) tip: Mutex<Tip>,
    note: Note,
    /// Progress of a running verification; `None` while none runs.
    pub(crate) survey: Mutex<Option<Survey>>,
    /// Lock held by a copy or a verification, so that one runs at a time.
    pub(crate) copying: Mutex<()>,
    /// Time of the last attempt to reopen sled.
    revived: Mutex<Option<Instant>>,
    pub(crate) ballast: Ballast,
    pub(crate) pulse: Pulse,
    pub(crate) options: Options,
    pub(crate) folder: Folder,
}

impl Engine {
    /// Opens the store in the directory.
    pub(crate) fn start(folder: Folder, options: Options) -> Result<Engine, StoreError> {
        let engine = Engine {
            live: RwLock::new(None),
            writing: Mutex::new(()),
            touched: Mutex::new(None),
            copying: Mutex::new(()),
            tip: Mutex::new(Tip::default()),
            note: Note::open(&folder.note())?,
            survey: Mutex::new(None),
            revived: Mutex::new(None),
            ballast: Ballast::new(folder.ballast(), options.ballast_bytes),
            pulse: Pulse::new(),
            options,
            folder,
        };
        engine.reopen()?;
        Ok(engine)
    }

    /// Calls `use_it` with the open database.
    pub(crate) fn with<T>(
        &self,
        use_it: impl FnOnce(&Live) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.pulse.closed() {
            self.revive()?;
        }
        match self.live.read().as_ref() {
            Some(live) => use_it(live),
            None => Err(self.refusal()),
        }
    }

    /// Reopens sled if a failure closed it, at most once a second.
    pub(crate) fn revive(&self) -> Result<(), StoreError> {
        let mut revived = self.revived.lock();
        if self.live.read().is_some() {
            return Ok(());
        }
        if revived.is_some_and(|at| at.elapsed() < RETRY) {
            return Err(self.refusal());
        }
        *revived = Some(Instant::now());
        self.reopen()
    }

    /// Returns the error of calls while sled is closed.
    fn refusal(&self) -> StoreError {
        match self.pulse.mode() {
            Mode::Full => StoreError::Full,
            _ => StoreError::Io { what: "reopen after a failure", kind: std::io::ErrorKind::NotConnected },
        }
    }

    /// Writes and syncs; durable on return. The caller must hold `writing`.
    pub(crate) fn commit(&self, writes: Writes) -> Result<(), Fault> {
        let live = self.live.read();
        let live = live.as_ref().ok_or_else(|| Fault::Write(self.refusal()))?;
        if let Some(touched) = self.touched.lock().as_mut() {
            touched.extend(writes.iter().map(|(key, _)| key.clone()));
        }
        let mut tip = *self.tip.lock();
        let mut survey = self.survey.lock();
        let mut sealed = Vec::with_capacity(writes.len() + 1);
        for (key, value) in writes {
            let new = value.map(|value| row::seal(&key, &value));
            let old_mark = live.sealed(&key).map_err(Fault::Write)?.map(|old| mark(&key, &old));
            let new_mark = new.as_deref().map(|new| mark(&key, new));
            let met = survey.as_mut().filter(|survey| survey.met(&key)).map(|survey| &mut survey.found);
            for tip in [Some(&mut tip), met].into_iter().flatten() {
                old_mark.into_iter().for_each(|mark| tip.take(mark));
                new_mark.into_iter().for_each(|mark| tip.add(mark));
            }
            sealed.push((key, new));
        }
        tip.groups += 1;
        sealed.push((tip::KEY.to_vec(), Some(row::seal(tip::KEY, &tip.to_bytes()))));
        let written = live.write(sealed).and_then(|()| live.flush()).map_err(Fault::Write);
        if let Err(fault) = written.and_then(|()| live.sync().map_err(Fault::Sync)) {
            // Rows counted by the verification may not be on disk.
            *survey = None;
            return Err(fault);
        }
        *self.tip.lock() = tip;
        self.note.write(tip.groups);
        Ok(())
    }

    /// Syncs the number of the last group, on a clean shutdown.
    pub(crate) fn seal(&self) {
        self.note.sync();
    }

    /// Loads the commit marker of the newly opened store.
    fn take_up(&self, live: &Live) -> Result<(), StoreError> {
        let tip = match live.get(tip::KEY)? {
            Some(tip) => Tip::from_bytes(&tip)?,
            None => Tip::default(),
        };
        let noted = self.note.read();
        if tip.groups < noted {
            let missing = noted - tip.groups;
            return Err(StoreError::corrupt(format!(
                "its log lacks the last {missing} acknowledged commits"
            )));
        }
        *self.tip.lock() = tip;
        Ok(())
    }

    /// Closes sled and reopens it from the files on disk; deletes the reserve file if opening needs space.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        let mut live = self.live.write();
        *live = None;
        self.pulse.closed.store(true, Ordering::Release);
        let start = || Live::start(&self.folder.live(), &self.options);
        let opened = match start() {
            Err(StoreError::Full) => self.ballast.release().and_then(|()| start()),
            opened => opened,
        };
        let opened = opened?;
        self.take_up(&opened)?;
        *live = Some(opened);
        self.pulse.closed.store(false, Ordering::Release);
        Ok(())
    }
}

/// Progress of a verification: the rows counted up to a key.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Greatest key read so far.
    pub(crate) cursor: Option<Vec<u8>>,
    /// Count and checksum of the rows up to the cursor, updated with concurrent writes.
    pub(crate) found: Tip,
}

impl Survey {
    fn met(&self, key: &[u8]) -> bool {
        self.cursor.as_deref().is_some_and(|cursor| key <= cursor)
    }
}

/// Error of a commit, by the failed step. After a failed sync the operating system may drop the pages it could not
/// write and report the next sync as successful, so no later write may be acknowledged.
#[derive(Debug)]
pub(crate) enum Fault {
    Write(StoreError),
    Sync(StoreError),
}

/// Write mode of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Ready = 0,
    Full = 1,
    Failed = 2,
}

/// Health of the writer, readable without a lock.
pub(crate) struct Pulse {
    origin: Instant,
    /// Start of the writer's current group, in milliseconds after `origin` plus one; 0 if idle.
    busy_since: AtomicU64,
    mode: AtomicU8,
    /// True if sled is closed after a failure.
    closed: AtomicBool,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse {
            origin: Instant::now(),
            busy_since: AtomicU64::new(0),
            mode: AtomicU8::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    pub(crate) fn busy(&self) {
        self.busy_since.store(self.now(), Ordering::Release);
    }

    pub(crate) fn idle(&self) {
        self.busy_since.store(0, Ordering::Release);
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            0 => Mode::Ready,
            1 => Mode::Full,
            _ => Mode::Failed,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Release);
    }

    pub(crate) fn health(&self, stuck_after: Duration) -> Health {
        let busy_since = self.busy_since.load(Ordering::Acquire);
        let milliseconds = if busy_since == 0 { 0 } else { self.now().saturating_sub(busy_since) };
        match self.mode() {
            Mode::Failed => Health::Failed,
            _ if u128::from(milliseconds) > stuck_after.as_millis() => Health::Stuck { milliseconds },
            Mode::Full => Health::Full,
            Mode::Ready if self.closed() => Health::Failed,
            Mode::Ready => Health::Ready,
        }
    }
}
