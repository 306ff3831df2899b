//! One batch at work: lines read ahead, asked as its turns allow, their results
//! committed in groups. Everything it waits for comes to it as an event, so that
//! whatever happens meets it in one place and in one order.

use super::commit::{Finished, Group, Wrote};
use super::input::{Asked, Input};
use super::later::Later;
use super::open::Opened;
use super::share::Share;
use super::short::Short;
use super::turns::{Place, Turn};
use super::{Tell, view};
use crate::caller::CancelLine;
use crate::endpoint::{self, Endpoint};
use crate::files::Output;
use crate::house::House;
use crate::line::LineDone;
use penstock_batch::done::Done;
use penstock_batch::state::{Life, State, Why};
use penstock_storage::Health;
use penstock_storage::batches::BatchRecord;
use penstock_storage::files::FileRecord;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// How often a batch looks around: at its window, its key, the store.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// How long started lines may end by themselves after a signal to stop, and then after being called off.
const GRACE: Duration = Duration::from_secs(3);

/// What a batch hears of.
pub(super) enum Event {
    /// Its files are open.
    Opened(Box<Opened>),
    /// They cannot be.
    Unopened(ErrorKind),
    /// Lines were read.
    Read(Input, std::io::Result<Vec<Asked>>),
    /// A line ended; `None` if it broke.
    Line(Asked, Turn, Option<Box<LineDone>>),
    /// A group was written.
    Wrote(Box<Wrote>),
    /// A commit is durable, or will never be.
    Kept(bool),
}

/// A batch at work.
pub(super) struct Work {
    pub(super) house: Arc<House>,
    /// As it is with the next commit; what the world sees is what was committed.
    pub(super) record: BatchRecord,
    pub(super) life: Life,
    pub(super) done: Done,
    pub(super) endpoint: Option<&'static dyn Endpoint>,
    pub(super) input: Option<Input>,
    pub(super) output: Option<Output>,
    /// The record of the output, as it was committed.
    pub(super) results: Option<FileRecord>,
    pub(super) ahead: VecDeque<Asked>,
    pub(super) ahead_bytes: usize,
    pub(super) later: Later,
    pub(super) short: Short,
    pub(super) flying: usize,
    pub(super) held: usize,
    pub(super) finished: VecDeque<Finished>,
    pub(super) finished_bytes: usize,
    /// Bytes of a result, as they lately were.
    pub(super) typical: usize,
    /// What it may hold in memory.
    pub(super) share: Share,
    /// Turns of the lines that are kept with the commit under way.
    pub(super) kept_soon: Vec<Turn>,
    pub(super) place: Place,
    pub(super) cancel: CancelLine,
    pub(super) abort: watch::Sender<bool>,
    pub(super) tell: mpsc::UnboundedSender<Event>,
    /// Opening or reading.
    pub(super) reading: bool,
    /// A group is on its way to the disk.
    pub(super) writing: bool,
    /// Nothing is tried before: the disk failed.
    pub(super) rest_until: Option<Instant>,
    pub(super) failures: u32,
    /// Nothing is begun for now: the store fails, or its key is suspended.
    pub(super) held_up: bool,
    /// Its key is suspended.
    suspended: bool,
    /// Why it ends, once it does.
    pub(super) ending: Option<Why>,
    /// The house stops.
    pub(super) stopping: bool,
    /// When started lines are called off, and when they are cut.
    calls_off: Option<Instant>,
    cuts: Option<Instant>,
    seen: watch::Sender<Arc<BatchRecord>>,
    askers: Vec<oneshot::Sender<Arc<BatchRecord>>>,
    over: bool,
}

/// Runs a batch until it is over or the house stops.
pub(super) async fn run(
    house: Arc<House>,
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
            _ = stop.wait_for(|stop| *stop), if !work.stopping => work.stop(),
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
        house: Arc<House>,
        record: BatchRecord,
        tell: mpsc::UnboundedSender<Event>,
        seen: watch::Sender<Arc<BatchRecord>>,
    ) -> Self {
        let place = house.batches.turns.place(&record.account);
        let share = house.batches.share(&house, &record.account);
        let suspended = house.keyring.grant(&record.key).is_some_and(|grant| grant.is_suspended());
        Self {
            life: view::life(&record),
            endpoint: endpoint::find(&http::Method::POST, &record.endpoint).ok().map(|(found, _)| found),
            place,
            house,
            record,
            done: Done::default(),
            input: None,
            output: None,
            results: None,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            later: Later::default(),
            short: Short::default(),
            flying: 0,
            held: 0,
            finished: VecDeque::new(),
            finished_bytes: 0,
            typical: 0,
            share,
            kept_soon: Vec::new(),
            cancel: CancelLine::default(),
            abort: watch::Sender::new(false),
            tell,
            reading: false,
            writing: false,
            rest_until: None,
            failures: 0,
            held_up: false,
            suspended,
            ending: None,
            stopping: false,
            calls_off: None,
            cuts: None,
            seen,
            askers: Vec::new(),
            over: false,
        }
    }

    fn is_over(&self) -> bool {
        let still = self.flying > 0 || !self.finished.is_empty() || self.writing || self.reading;
        // A disk that is full does not keep the process from ending: what was not kept is asked again.
        let given_up = self.rest_until.is_some() && !self.writing && !self.reading && self.flying == 0;
        self.over || (self.stopping && (!still || given_up))
    }

    /// Does whatever can be done now.
    fn step(&mut self) {
        let rests = self.rest_until.is_some_and(|until| Instant::now() < until);
        if !rests && !self.stopping && self.ending.is_none() {
            if !self.waits() {
                self.open();
            }
            self.begin_lines();
            self.read_ahead();
        }
        if self.ending.is_some() || self.stopping {
            self.place.leave();
        }
        if !rests {
            self.commit();
        }
    }

    /// When there is something to do without an event.
    fn wake(&self, look: Instant) -> Instant {
        self.later.due().map_or(look, |due| due.min(look).max(Instant::now() + Duration::from_millis(1)))
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Opened(opened) => self.opened(*opened),
            Event::Unopened(kind) => self.unopened(kind),
            Event::Read(input, read) => {
                self.reading = false;
                self.input = Some(input);
                match read {
                    Ok(lines) => self.is_ahead(lines),
                    Err(error) => self.unopened(error.kind()),
                }
            }
            Event::Line(asked, turn, done) => self.landed(asked, turn, done),
            Event::Wrote(wrote) => self.wrote(*wrote),
            Event::Kept(true) => self.kept(),
            Event::Kept(false) => self.over = true,
        }
    }

    /// Looks around.
    fn look(&mut self) {
        let now = Instant::now();
        self.short.look();
        if self.calls_off.is_some_and(|at| now >= at) {
            self.call_off();
        }
        if self.cuts.is_some_and(|at| now >= at) {
            self.abort.send_replace(true);
        }
        let unix = self.house.clock.unix();
        if unix >= self.record.expires {
            self.end(Why::Expired);
        }
        let grant = self.house.keyring.grant(&self.record.key);
        match grant {
            Some(grant) if grant.good(unix) => {
                self.suspended = false;
                self.held_up = self.house.vault.store.health() != Health::Ready;
            }
            Some(grant) if grant.is_suspended() => (self.suspended, self.held_up) = (true, true),
            _ => self.end(Why::KeyRevoked),
        }
        self.park();
        self.share = self.house.batches.share(&self.house, &self.record.account);
    }

    /// It will begin no line for long: its hour is to come, or its key is suspended.
    fn waits(&self) -> bool {
        let hour = self.record.scheduled.is_some_and(|hour| hour > self.house.clock.unix());
        self.life.state == State::InProgress && (hour || self.suspended)
    }

    /// While it waits it holds nothing of its files, and its share is that of others. Afterwards it opens them as
    /// after a restart: by then all that had a result was committed.
    fn park(&mut self) {
        let waits = self.waits() && self.ending.is_none();
        if waits && self.is_bare() && !self.reading {
            (self.input, self.output) = (None, None);
            self.ahead = VecDeque::new();
            self.ahead_bytes = 0;
            self.later = Later::default();
            self.house.batches.park(&self.record.id, true);
        } else if !waits {
            self.house.batches.park(&self.record.id, false);
        }
    }

    fn told(&mut self, told: Tell) {
        let (why, asker) = match told {
            Tell::Cancel(asker) => (Why::Cancelled, asker),
            Tell::InputDeleted(asker) => (Why::InputDeleted, asker),
        };
        self.askers.push(asker);
        self.end(why);
    }

    /// It ends before its last line, unless it has ended already.
    pub(super) fn end(&mut self, why: Why) {
        if self.ending.is_some() || self.life.state.is_end() {
            return;
        }
        self.ending = Some(why);
        self.ahead.clear();
        self.ahead_bytes = 0;
        self.later = Later::default();
        self.call_off();
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.calls_off = Some(Instant::now() + GRACE);
    }

    /// Started lines are told that nobody waits for them any more.
    fn call_off(&mut self) {
        self.calls_off = None;
        self.cancel.cancel();
        if self.cuts.is_none() {
            self.cuts = Some(Instant::now() + GRACE);
        }
    }

    /// Nothing of it is at work, and its files are not being opened.
    pub(super) const fn is_idle(&self) -> bool {
        self.flying == 0 && !self.reading
    }

    /// It holds no turn: nothing is at work or waits to be kept.
    pub(super) fn is_bare(&self) -> bool {
        self.flying == 0 && self.finished.is_empty() && !self.writing
    }

    /// What was committed is what the world sees.
    fn kept(&mut self) {
        self.writing = false;
        self.kept_soon.clear();
        let record = Arc::new(self.record.clone());
        self.seen.send_replace(record.clone());
        if self.life.state.is_end() {
            self.house.batches.told_end(&self.house, &record);
            self.over = true;
            for asker in self.askers.drain(..) {
                asker.send(record.clone()).ok();
            }
        }
    }

    pub(super) fn group(&mut self, most: usize) -> Group {
        let mut group = Group::default();
        while group.lines.len() < most && group.bytes.len() <= self.share.group {
            let Some(finished) = self.finished.pop_front() else { break };
            self.finished_bytes = self.finished_bytes.saturating_sub(finished.text.len());
            group.bytes.extend_from_slice(&finished.text);
            group.lines.push(finished);
        }
        group
    }
}
