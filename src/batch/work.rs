//! One batch at work: lines read ahead, asked as its turns allow, their results
//! committed in groups. Everything it waits for comes to it as an event, so that
//! whatever happens meets it in one place and in one order.

use super::commit::{Finished, Group, Wrote};
use super::input::{Asked, Input};
use super::later::Later;
use super::turns::{Place, Turn};
use super::{Tell, view};
use crate::caller::CancelLine;
use crate::endpoint::{self, Endpoint};
use crate::files::Output;
use crate::house::House;
use crate::line::{self, LineAsk, LineDone};
use crate::observe::log;
use bytes::Bytes;
use penstock_batch::done::Done;
use penstock_batch::result;
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
const LOOK: Duration = Duration::from_millis(250);
/// How long started lines may end by themselves after a signal to stop, and then after being called off.
const GRACE: Duration = Duration::from_secs(3);
/// Pause before a line is asked again that gave way to others.
const BREATH: Duration = Duration::from_millis(100);
/// Bodies at work and waiting, in bytes.
const MOST_HELD: usize = 16 << 20;
/// Results that wait for the disk, and their bytes.
const MOST_FINISHED: usize = 2_048;
const MOST_BYTES: usize = 8 << 20;
/// Lines read ahead, below which more are read.
const AHEAD: usize = 128;

/// What a batch hears of.
pub(super) enum Event {
    /// Its files are open.
    Opened(Box<Opened>),
    /// They cannot be.
    Unopened(ErrorKind),
    /// Lines were read.
    Read(Input, std::io::Result<Vec<Asked>>),
    /// A line ended; `None` if it broke.
    Line(Asked, Option<Box<LineDone>>),
    /// A group was written.
    Wrote(Box<Wrote>),
    /// A commit is durable, or will never be.
    Kept(bool),
}

/// The files of a batch, open.
pub(super) struct Opened {
    pub(super) input: Input,
    pub(super) first: Vec<Asked>,
    pub(super) file: FileRecord,
    pub(super) output: Option<(Output, FileRecord)>,
    pub(super) done: Done,
}

/// A batch at work.
pub(super) struct Work {
    pub(super) house: Arc<House>,
    /// As it is with the next commit; what the world sees is what was committed.
    pub(super) record: BatchRecord,
    pub(super) life: Life,
    pub(super) done: Done,
    endpoint: Option<&'static dyn Endpoint>,
    input: Option<Input>,
    pub(super) output: Option<Output>,
    /// The record of the output, as it was committed.
    pub(super) results: Option<FileRecord>,
    ahead: VecDeque<Asked>,
    later: Later,
    flying: usize,
    held: usize,
    pub(super) finished: VecDeque<Finished>,
    pub(super) finished_bytes: usize,
    place: Place,
    cancel: CancelLine,
    abort: watch::Sender<bool>,
    pub(super) tell: mpsc::UnboundedSender<Event>,
    /// Opening or reading.
    reading: bool,
    /// A group is on its way to the disk.
    pub(super) writing: bool,
    /// Nothing is tried before: the disk failed.
    pub(super) rest_until: Option<Instant>,
    pub(super) failures: u32,
    /// Nothing is begun for now: the store fails, or its key is suspended.
    held_up: bool,
    /// Why it ends, once it does.
    pub(super) ending: Option<Why>,
    /// The house stops.
    stopping: bool,
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
            later: Later::default(),
            flying: 0,
            held: 0,
            finished: VecDeque::new(),
            finished_bytes: 0,
            cancel: CancelLine::default(),
            abort: watch::Sender::new(false),
            tell,
            reading: false,
            writing: false,
            rest_until: None,
            failures: 0,
            held_up: false,
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
            self.open();
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

    /// Opens its files, once.
    fn open(&mut self) {
        if self.input.is_none() && !self.reading {
            self.reading = true;
            let (house, record, tell) = (self.house.clone(), self.record.clone(), self.tell.clone());
            tokio::task::spawn_blocking(move || {
                let opened = super::open::open(&house, &record);
                // Before it is told: when the batch is over, nothing of it holds on to the house.
                drop(house);
                tell.send(match opened {
                    Ok(opened) => Event::Opened(Box::new(opened)),
                    Err(error) => Event::Unopened(error.kind()),
                })
            });
        }
    }

    fn read_ahead(&mut self) {
        if self.reading || self.ahead.len() >= AHEAD || self.later.is_full() {
            return;
        }
        let Some(mut input) = self.input.take_if(|input| !input.over) else { return };
        self.reading = true;
        let (done, tell) = (self.done.clone(), self.tell.clone());
        tokio::task::spawn_blocking(move || {
            let read = input.read(&done);
            tell.send(Event::Read(input, read))
        });
    }

    /// Begins as many lines as there are turns for.
    fn begin_lines(&mut self) {
        let now = self.house.clock.unix();
        let due = self.life.state == State::InProgress
            && self.record.scheduled.is_none_or(|hour| hour <= now)
            && !self.held_up
            && !self.house.ledger.failing();
        while due && self.finished.len() < MOST_FINISHED && self.finished_bytes < MOST_BYTES {
            if self.held > MOST_HELD && self.flying > 0 {
                break;
            }
            let Some(asked) = self.next_line() else { break };
            let most = self.house.live().settings.batches.concurrency;
            match self.place.take(most, self.flying == 0) {
                Some(turn) => self.begin(asked, turn),
                None => {
                    self.ahead.push_front(asked);
                    return;
                }
            }
        }
        self.place.leave();
    }

    fn next_line(&mut self) -> Option<Asked> {
        let again = self.later.pop(Instant::now());
        again.or_else(|| if self.later.is_full() { None } else { self.ahead.pop_front() })
    }

    fn begin(&mut self, asked: Asked, turn: Turn) {
        let Some(grant) = self.house.keyring.grant(&self.record.key) else {
            self.ahead.push_front(asked);
            return self.end(Why::KeyRevoked);
        };
        let Some(endpoint) = self.endpoint else { return self.end(Why::Invalid) };
        self.flying += 1;
        self.held += asked.body.len();
        let ask = LineAsk { grant, endpoint, body: asked.body.clone(), cancel: self.cancel.clone() };
        let (house, mut abort) = (self.house.clone(), self.abort.subscribe());
        let flight = Flight { asked: Some(asked), tell: self.tell.clone(), _turn: turn };
        self.house.batches.serve(async move {
            let flight = flight;
            let done = tokio::select! {
                done = line::line(&house, ask) => Some(done),
                _ = abort.wait_for(|abort| *abort) => None,
            };
            drop(house);
            flight.land(done);
        });
    }

    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Opened(opened) => self.opened(*opened),
            Event::Unopened(kind) => self.unopened(kind),
            Event::Read(input, read) => {
                self.reading = false;
                self.input = Some(input);
                match read {
                    Ok(lines) => self.ahead.extend(lines),
                    Err(error) => self.unopened(error.kind()),
                }
            }
            Event::Line(asked, done) => self.landed(asked, done),
            Event::Wrote(wrote) => self.wrote(*wrote),
            Event::Kept(true) => self.kept(),
            Event::Kept(false) => self.over = true,
        }
    }

    fn opened(&mut self, opened: Opened) {
        self.reading = false;
        let Opened { input, first, file, output, done } = opened;
        self.input = Some(input);
        self.done = done;
        if let Some((output, results)) = output {
            self.output = Some(output);
            self.results = Some(results);
        }
        self.rest_until = None;
        if self.ending.is_some() {
            return;
        }
        if self.life.state == State::Validating {
            if file.lines == 0 {
                return self.end(Why::Invalid);
            }
            self.record.model = first.first().and_then(|line| super::input::model(&line.body));
            self.done = Done::none(file.lines);
            let now = self.house.clock.now();
            self.life.begin(file.lines, now.as_secs());
            let plan = super::hours::planned(&self.house.live(), &self.record, file.lines, now);
            self.record.scheduled = plan.map(|plan| plan.start);
            self.keep_row();
        }
        self.ahead.extend(first);
    }

    fn unopened(&mut self, kind: ErrorKind) {
        self.reading = false;
        match kind {
            ErrorKind::NotFound => self.end(Why::InputDeleted),
            ErrorKind::InvalidData => self.end(Why::Invalid),
            // Said by `open` alone: less of the results is there than was committed.
            ErrorKind::UnexpectedEof => self.end(Why::OutputDamaged),
            kind => {
                let why = kind.to_string();
                log::event(log::error(), "batch_not_read", &[("batch", &self.record.id), ("why", &why)]);
                self.rest();
            }
        }
    }

    /// A line ended, one way or the other.
    fn landed(&mut self, mut asked: Asked, done: Option<Box<LineDone>>) {
        self.flying = self.flying.saturating_sub(1);
        self.held = self.held.saturating_sub(asked.body.len());
        let ends = self.ending.is_some() || self.stopping;
        let Some(mut done) = done else {
            // It broke, or was cut: its reserve was voided when it was dropped.
            if !ends {
                asked.times += 1;
                self.again(asked, Duration::ZERO, false);
            }
            return;
        };
        let keyless = done.status == 401 && !self.key_is_good();
        if done.cancelled || keyless || (done.retry.is_some() && ends) {
            if !ends {
                // Its key is suspended, or about to be found revoked.
                self.later.push(asked, Instant::now() + LOOK * 2);
            }
            return self.void(done.end.take());
        }
        if let Some(wanted) = done.retry {
            let waived = done.yielded;
            asked.times += u32::from(!waived);
            if waived || self.may_again(&asked) {
                self.house.metrics.batches.line("retried");
                self.void(done.end.take());
                return self.again(asked, wanted, waived);
            }
        }
        let good = (200..300).contains(&done.status);
        let mut text = Vec::with_capacity(128 + done.body.iter().map(Bytes::len).sum::<usize>());
        let id = format!("batch_{}", done.request.as_str());
        result::write(&mut text, &id, &asked.custom_id, done.status, done.body.iter().map(|piece| &**piece));
        self.finished_bytes += text.len();
        self.finished.push_back(Finished {
            index: asked.index,
            good,
            end: done.end,
            usage: done.usage,
            text,
        });
    }

    fn key_is_good(&self) -> bool {
        let now = self.house.clock.unix();
        self.house.keyring.grant(&self.record.key).is_some_and(|grant| grant.good(now))
    }

    fn may_again(&self, asked: &Asked) -> bool {
        let again = self.house.live().settings.batches.again;
        again.pause(asked.times, Duration::ZERO, 0, self.left()).is_some()
    }

    /// Asks a line again after a while; at once if it was only in the way of others.
    fn again(&mut self, mut asked: Asked, wanted: Duration, waived: bool) {
        let again = self.house.live().settings.batches.again;
        let pause = again.pause(asked.times, wanted, rand::random(), self.left());
        let pause = match pause {
            _ if waived => wanted.max(BREATH),
            Some(pause) => pause,
            // One that the window has no room for ends with the window.
            None => wanted.max(again.first),
        };
        // A copy: the line must not hold on to all that was read with it.
        asked.body = Bytes::copy_from_slice(&asked.body);
        self.later.push(asked, Instant::now() + pause);
    }

    /// What is left of the window.
    fn left(&self) -> Duration {
        Duration::from_secs(self.record.expires).saturating_sub(self.house.clock.now())
    }

    /// Looks around.
    fn look(&mut self) {
        let now = Instant::now();
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
                self.held_up = self.house.vault.store.health() != Health::Ready
            }
            Some(grant) if grant.is_suspended() => self.held_up = true,
            _ => self.end(Why::KeyRevoked),
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
    fn end(&mut self, why: Why) {
        if self.ending.is_some() || self.life.state.is_end() {
            return;
        }
        self.ending = Some(why);
        self.ahead.clear();
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

    /// What was committed is what the world sees.
    fn kept(&mut self) {
        self.writing = false;
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
        while group.lines.len() < most && group.bytes.len() < MOST_BYTES {
            let Some(finished) = self.finished.pop_front() else { break };
            self.finished_bytes = self.finished_bytes.saturating_sub(finished.text.len());
            group.bytes.extend_from_slice(&finished.text);
            group.lines.push(finished);
        }
        group
    }
}

/// A line at work: whatever becomes of it, its batch hears of it.
struct Flight {
    asked: Option<Asked>,
    tell: mpsc::UnboundedSender<Event>,
    _turn: Turn,
}

impl Flight {
    fn land(mut self, done: Option<LineDone>) {
        if let Some(asked) = self.asked.take() {
            self.tell.send(Event::Line(asked, done.map(Box::new))).ok();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.tell.send(Event::Line(asked, None)).ok();
        }
    }
}
