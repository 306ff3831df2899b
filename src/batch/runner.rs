//! Runner of one batch: prefetches lines, sends them as run permits allow, and commits their results in groups. All
//! results arrive as events on one channel, so that they are handled in one place and in order.

use super::commit::{Group, Wrote};
use super::context::BatchContext;
use super::context::LineDone;
use super::funds_backoff::Short;
use super::input::{Asked, Input};
use super::memory_budget::Share;
use super::open::Opened;
use super::retry_queue::Later;
use super::runner_state::{Ahead, Disk, Exit, Flying, OpenFiles, Paused, Unwritten, Watchers};
use super::scheduler::{Place, Turn};
use super::{Tell, api_object};
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::jsonl::BATCH_PATHS;
use penstock_batch::state::{BatchLifecycle, EndReason, LifecycleState};
use penstock_storage::StoreHealth;
use penstock_storage::batches::BatchRecord;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Interval of the checks of the completion window, the key and the store.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Grace period of started lines after a stop signal, and again after their cancellation.
const GRACE: Duration = Duration::from_secs(3);

/// Event of a running batch.
pub(super) enum Event {
    /// Files were opened.
    Opened(Box<Opened>),
    /// Files could not be opened.
    Unopened(ErrorKind),
    /// Input lines were read.
    Read(Input, std::io::Result<Vec<Asked>>),
    /// A line ended; `None` if its task was aborted or panicked.
    Line(Asked, Turn, Option<Box<LineDone>>),
    /// A group was written.
    Wrote(Box<Wrote>),
    /// A commit is durable (true) or failed for good (false).
    Kept(bool),
}

/// Running batch.
pub(super) struct Work {
    pub(super) house: Arc<BatchContext>,
    /// Record for the next commit; clients see the last committed one.
    pub(super) record: BatchRecord,
    pub(super) life: BatchLifecycle,
    pub(super) done: CompletionBitmap,
    pub(super) path: Option<&'static str>,
    pub(super) files: OpenFiles,
    pub(super) ahead: Ahead,
    pub(super) later: Later,
    pub(super) short: Short,
    pub(super) flying: Flying,
    pub(super) unwritten: Unwritten,
    /// Permits of the lines in the current commit.
    pub(super) kept_soon: Vec<Turn>,
    pub(super) place: Place,
    /// Memory limits.
    pub(super) share: Share,
    pub(super) disk: Disk,
    pub(super) paused: Paused,
    pub(super) exit: Exit,
    watchers: Watchers,
    pub(super) tell: mpsc::UnboundedSender<Event>,
}

/// Runs a batch until it has ended or the gateway stops.
pub(super) async fn run(
    house: Arc<BatchContext>,
    record: BatchRecord,
    mut tells: mpsc::UnboundedReceiver<Tell>,
    seen: watch::Sender<Arc<BatchRecord>>,
) {
    let mut stop = house.batches.stopping();
    let (tell, mut events) = mpsc::unbounded_channel();
    let mut work = Work::new(house, record, tell, seen);
    let mut look = Instant::now();
    while !work.is_over() {
        work.step();
        let wake = work.wake(look);
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop), if !work.exit.stopping => work.stop(),
            Some(told) = tells.recv() => work.told(told),
            Some(event) = events.recv() => {
                work.take(event);
                while let Ok(event) = events.try_recv() {
                    work.take(event);
                }
            }
            () = work.place.given_one() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
        if Instant::now() >= look {
            work.look();
            look = Instant::now() + LOOK;
        }
    }
    let Work { house, record, .. } = work;
    house.batches.gone(&record.id);
}

impl Work {
    fn new(
        house: Arc<BatchContext>,
        record: BatchRecord,
        tell: mpsc::UnboundedSender<Event>,
        seen: watch::Sender<Arc<BatchRecord>>,
    ) -> Self {
        let place = house.batches.turns.place(&record.account);
        let share = house.batches.share(&house, &record.account);
        let suspended = house.keyring.grant(&record.key).is_some_and(|grant| grant.is_suspended());
        Self {
            life: api_object::life(&record),
            path: BATCH_PATHS.iter().copied().find(|path| *path == record.endpoint),
            place,
            house,
            record,
            done: CompletionBitmap::default(),
            files: OpenFiles::default(),
            ahead: Ahead::default(),
            later: Later::default(),
            short: Short::default(),
            flying: Flying::default(),
            unwritten: Unwritten::default(),
            kept_soon: Vec::new(),
            share,
            disk: Disk::default(),
            paused: Paused { held_up: false, suspended },
            exit: Exit::default(),
            watchers: Watchers { seen, askers: Vec::new() },
            tell,
        }
    }

    fn is_over(&self) -> bool {
        let still = self.flying.lines > 0
            || !self.unwritten.lines.is_empty()
            || self.disk.writing
            || self.disk.reading;
        // A full disk does not prevent the process from ending: uncommitted lines are sent again after the restart.
        let given_up = self.disk.rest_until.is_some()
            && !self.disk.writing
            && !self.disk.reading
            && self.flying.lines == 0;
        self.exit.over || (self.exit.stopping && (!still || given_up))
    }

    /// Does all work that is possible now.
    fn step(&mut self) {
        let rests = self.disk.rest_until.is_some_and(|until| Instant::now() < until);
        if !rests && !self.exit.stopping && self.exit.why.is_none() {
            if !self.waits() {
                self.open();
            }
            self.begin_lines();
            self.read_ahead();
        }
        if self.exit.why.is_some() || self.exit.stopping {
            self.place.leave();
        }
        if !rests {
            self.commit();
        }
    }

    /// Time of the next work without an event.
    fn wake(&self, look: Instant) -> Instant {
        self.later.due().map_or(look, |due| due.min(look).max(Instant::now() + Duration::from_millis(1)))
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Opened(opened) => self.opened(*opened),
            Event::Unopened(kind) => self.unopened(kind),
            Event::Read(input, read) => {
                self.disk.reading = false;
                self.files.input = Some(input);
                match read {
                    Ok(lines) => self.is_ahead(lines),
                    Err(error) => self.unopened(error.kind()),
                }
            }
            Event::Line(asked, turn, done) => self.landed(asked, turn, done),
            Event::Wrote(wrote) => self.wrote(*wrote),
            Event::Kept(true) => self.kept(),
            Event::Kept(false) => self.exit.over = true,
        }
    }

    /// Checks the time limits, the completion window, the key and the store.
    fn look(&mut self) {
        let now = Instant::now();
        self.short.look();
        if self.exit.calls_off.is_some_and(|at| now >= at) {
            self.call_off();
        }
        if self.exit.cuts.is_some_and(|at| now >= at) {
            self.flying.abort.send_replace(true);
        }
        let unix = self.house.clock.unix();
        if unix >= self.record.expires {
            self.end(EndReason::Expired);
        }
        let grant = self.house.keyring.grant(&self.record.key);
        match grant {
            Some(grant) if grant.good(unix) => {
                self.paused.suspended = false;
                self.paused.held_up = self.house.batches.engine.health() != StoreHealth::Ready;
            }
            Some(grant) if grant.is_suspended() => {
                (self.paused.suspended, self.paused.held_up) = (true, true);
            }
            _ => self.end(EndReason::KeyRevoked),
        }
        self.park();
        self.share = self.house.batches.share(&self.house, &self.record.account);
    }

    /// Returns true if no line starts for a long time: the batch is scheduled for later, or its key is suspended.
    fn waits(&self) -> bool {
        let hour = self.record.scheduled.is_some_and(|hour| hour > self.house.clock.unix());
        self.life.state == LifecycleState::InProgress && (hour || self.paused.suspended)
    }

    /// Releases the files and the memory share while the batch waits. Afterwards it opens its files again, as after a
    /// restart: by then all results were committed.
    fn park(&mut self) {
        let waits = self.waits() && self.exit.why.is_none();
        if waits && self.is_bare() && !self.disk.reading {
            (self.files.input, self.files.output) = (None, None);
            self.ahead = Ahead::default();
            self.later = Later::default();
            self.house.batches.park(&self.record.id, true);
        } else if !waits {
            self.house.batches.park(&self.record.id, false);
        }
    }

    fn told(&mut self, told: Tell) {
        let (why, asker) = match told {
            Tell::Cancel(asker) => (EndReason::Cancelled, asker),
            Tell::InputDeleted(asker) => (EndReason::InputDeleted, asker),
        };
        self.watchers.askers.push(asker);
        self.end(why);
    }

    /// Ends the batch before its last line, unless it has ended already.
    pub(super) fn end(&mut self, why: EndReason) {
        if self.exit.why.is_some() || self.life.state.is_final() {
            return;
        }
        self.exit.why = Some(why);
        self.ahead.lines.clear();
        self.ahead.bytes = 0;
        self.later = Later::default();
        self.call_off();
    }

    fn stop(&mut self) {
        self.exit.stopping = true;
        self.exit.calls_off = Some(Instant::now() + GRACE);
    }

    /// Cancels started lines because their results are no longer needed.
    fn call_off(&mut self) {
        self.exit.calls_off = None;
        self.flying.cancel.cancel();
        if self.exit.cuts.is_none() {
            self.exit.cuts = Some(Instant::now() + GRACE);
        }
    }

    /// Returns true if no line is in flight and no file is being read.
    pub(super) const fn is_idle(&self) -> bool {
        self.flying.lines == 0 && !self.disk.reading
    }

    /// Returns true if the batch holds no permit: no line is in flight or waits for a commit.
    pub(super) fn is_bare(&self) -> bool {
        self.flying.lines == 0 && self.unwritten.lines.is_empty() && !self.disk.writing
    }

    /// Publishes the committed record.
    fn kept(&mut self) {
        self.disk.writing = false;
        self.kept_soon.clear();
        let record = Arc::new(self.record.clone());
        self.watchers.seen.send_replace(record.clone());
        if self.life.state.is_final() {
            self.house.batches.told_end(&self.house, &record);
            self.exit.over = true;
            for asker in self.watchers.askers.drain(..) {
                asker.send(record.clone()).ok();
            }
        }
    }

    pub(super) fn group(&mut self, most: usize) -> Group {
        let mut group = Group::default();
        while group.lines.len() < most && group.bytes.len() <= self.share.group {
            let Some(finished) = self.unwritten.lines.pop_front() else { break };
            self.unwritten.bytes = self.unwritten.bytes.saturating_sub(finished.text.len());
            group.bytes.extend_from_slice(&finished.text);
            group.lines.push(finished);
        }
        group
    }
}
