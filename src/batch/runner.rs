//! Runner of one batch: it prefetches lines, sends them as run permits allow, and commits their results in groups. All
//! results arrive as events on one channel, so that one task handles them in their order.

use super::claims::HeldClaim;
use super::commit::{BatchCommitOutcome, GroupWriteResult};
use super::context::BatchContext;
use super::context::LineResponse;
use super::funds_backoff::LineStartLimiter;
use super::input::{BatchInputReader, PendingLine};
use super::memory_limits::BatchMemoryLimits;
use super::open_files::OpenedBatch;
use super::retry_queue::RetryQueue;
use super::runner_state::{
    BatchWatchers, DiskState, InFlightLines, OpenInputAndOutput, PauseReason, PendingResults,
    PrefetchedLines, RunnerPhase, ShutdownState, SlicingState,
};
use super::scheduler::{RunPermit, SchedulerEntry};
use super::slice_merge::{LoadedSegments, SliceMergeState};
use super::{BatchCommand, api_object};
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::jsonl::BATCH_PATHS;
use penstock_batch::state::{BatchLifecycle, EarlyEndReason, LifecycleState};
use penstock_storage::StoreHealth;
use penstock_storage::batches::{BatchRecord, BatchSlice, EndRequest};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Interval of the checks of the completion window, the key and the store.
pub(super) const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which started lines may continue after a stop signal, and again after their cancellation.
const GRACE_PERIOD: Duration = Duration::from_secs(3);

/// Event of a running batch.
pub(super) enum BatchEvent {
    /// Event after the files of the batch were opened.
    FilesOpened(Box<OpenedBatch>),
    /// Event after the files of the batch could not be opened.
    OpenFailed(ErrorKind),
    /// Event after input lines were read.
    LinesRead(BatchInputReader, std::io::Result<Vec<PendingLine>>),
    /// A line ended; `None` if its task was aborted or panicked.
    LineEnded(PendingLine, RunPermit, Option<Box<LineResponse>>),
    /// Event after the input was divided into slices.
    Divided(std::io::Result<Vec<BatchSlice>>),
    /// Event after segments of slices were read.
    SegmentsRead(std::io::Result<Box<LoadedSegments>>),
    /// Event after a group of results was written.
    GroupWritten(Box<GroupWriteResult>),
    /// Event after a commit has ended.
    Committed(BatchCommitOutcome),
}

/// Batch to run.
pub(super) struct RunnableBatch {
    pub(super) record: BatchRecord,
    /// Claim of this member of a fleet; `None` if no other process may run the batch.
    pub(super) claim: Option<HeldClaim>,
}

/// Running batch.
pub(super) struct BatchRunner {
    pub(super) app: Arc<BatchContext>,
    /// Record that the next commit writes; clients see the last committed record.
    pub(super) record: BatchRecord,
    /// Claim that each commit requires, in a fleet.
    pub(super) claim: Option<HeldClaim>,
    pub(super) lifecycle: BatchLifecycle,
    pub(super) finished_lines: CompletionBitmap,
    /// Path of the endpoint; `None` for an endpoint that batches do not support.
    pub(super) path: Option<&'static str>,
    pub(super) files: OpenInputAndOutput,
    pub(super) prefetched: PrefetchedLines,
    pub(super) retries: RetryQueue,
    pub(super) funds: LineStartLimiter,
    pub(super) in_flight: InFlightLines,
    pub(super) pending: PendingResults,
    /// Permits of the lines in the current commit.
    pub(super) committing: Vec<RunPermit>,
    pub(super) scheduler_entry: SchedulerEntry,
    /// Limits on the memory of the batch.
    pub(super) memory_limits: BatchMemoryLimits,
    pub(super) disk: DiskState,
    pub(super) pause: PauseReason,
    pub(super) slicing: SlicingState,
    /// True for a slice whose lines have all started.
    all_lines_started: bool,
    /// State of a batch in slices.
    pub(super) merge: SliceMergeState,
    pub(super) shutdown: ShutdownState,
    watchers: BatchWatchers,
    pub(super) events: mpsc::UnboundedSender<BatchEvent>,
}

/// Runs a batch until it has ended, its claim is lost or the gateway stops.
pub(super) async fn run_batch(
    context: Arc<BatchContext>,
    start: RunnableBatch,
    mut commands: mpsc::UnboundedReceiver<BatchCommand>,
    publisher: watch::Sender<Arc<BatchRecord>>,
) {
    let mut stop = context.batches.stop_signal();
    let (event_sender, mut events) = mpsc::unbounded_channel();
    let mut work = BatchRunner::new(context, start, event_sender, publisher);
    let mut next_tick = Instant::now();
    while !work.is_done() {
        work.run_step();
        let wake = work.next_wake(next_tick);
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop), if !work.shutdown.is_stopping() => work.begin_stop(),
            Some(command) = commands.recv() => work.on_command(command),
            Some(event) = events.recv() => {
                work.on_event(event);
                while let Ok(event) = events.try_recv() {
                    work.on_event(event);
                }
            }
            () = work.scheduler_entry.wait_for_grant() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
        if Instant::now() >= next_tick {
            work.tick();
            next_tick = Instant::now() + TICK_INTERVAL;
        }
    }
    work.release_claim().await;
    let BatchRunner { app: context, record, .. } = work;
    context.batches.unregister(&record.id);
}

impl BatchRunner {
    pub(super) fn new(
        app: Arc<BatchContext>,
        RunnableBatch { record, claim }: RunnableBatch,
        events: mpsc::UnboundedSender<BatchEvent>,
        publisher: watch::Sender<Arc<BatchRecord>>,
    ) -> Self {
        let scheduler_entry = app.batches.scheduler.register_batch(&record.account);
        let memory_limits = app.batches.memory_limits(&app, &record.account);
        let retries = RetryQueue::new(app.batches.retry_load(&record.id));
        let is_suspended =
            app.key_cache.find_principal(&record.key).is_some_and(|principal| principal.is_suspended());
        Self {
            lifecycle: api_object::lifecycle_from_record(&record),
            path: BATCH_PATHS.iter().copied().find(|path| *path == record.endpoint),
            scheduler_entry,
            app,
            record,
            claim,
            finished_lines: CompletionBitmap::default(),
            files: OpenInputAndOutput::default(),
            prefetched: PrefetchedLines::default(),
            retries,
            funds: LineStartLimiter::default(),
            in_flight: InFlightLines::default(),
            pending: PendingResults::default(),
            committing: Vec::new(),
            memory_limits,
            disk: DiskState::default(),
            pause: if is_suspended { PauseReason::KeySuspended } else { PauseReason::None },
            slicing: SlicingState::default(),
            all_lines_started: false,
            merge: SliceMergeState::default(),
            shutdown: ShutdownState::default(),
            watchers: BatchWatchers { published: publisher, end_waiters: Vec::new() },
            events,
        }
    }

    fn is_done(&self) -> bool {
        let still = self.in_flight.lines > 0
            || !self.pending.lines.is_empty()
            || self.disk.writing
            || self.disk.reading;
        // A full disk does not prevent the process from ending: uncommitted lines are sent again after the restart.
        let given_up = self.disk.is_paused(Instant::now())
            && !self.disk.writing
            && !self.disk.reading
            && self.in_flight.lines == 0;
        self.shutdown.is_finished() || (self.shutdown.is_stopping() && (!still || given_up))
    }

    /// Does all work that is possible now.
    fn run_step(&mut self) {
        let is_paused = self.disk.is_paused(Instant::now());
        let is_active = !is_paused && !self.shutdown.is_stopping();
        if is_active && self.record.slices.is_some() {
            self.start_segment_reads();
        } else if is_active && self.shutdown.reason.is_none() {
            if !self.is_waiting() && !self.all_lines_started {
                self.open_files();
            }
            self.start_lines();
            self.prefetch_lines();
            self.note_all_lines_started();
        }
        if self.shutdown.reason.is_some() || self.shutdown.is_stopping() {
            self.scheduler_entry.leave_queue();
        }
        if !is_paused {
            self.start_next_write();
        }
    }

    /// Records that all lines of a slice have started, so that this gateway may run a further slice. The input file is
    /// not read any more.
    fn note_all_lines_started(&mut self) {
        let is_at_end = self.files.input.as_ref().is_some_and(|input| input.at_end);
        if self.record.slice.is_some()
            && !self.all_lines_started
            && is_at_end
            && self.prefetched.lines.is_empty()
        {
            self.all_lines_started = true;
            self.files.input = None;
            self.app.batches.mark_all_lines_started(&self.record.id);
        }
    }

    /// Returns the time of the next work that does not depend on an event.
    fn next_wake(&self, next_tick: Instant) -> Instant {
        let due = self.retries.next_due().into_iter().chain(self.next_group_deadline()).min();
        due.map_or(next_tick, |due| due.min(next_tick).max(Instant::now() + Duration::from_millis(1)))
    }

    pub(super) fn on_event(&mut self, event: BatchEvent) {
        match event {
            BatchEvent::FilesOpened(opened) => self.on_files_opened(*opened),
            BatchEvent::OpenFailed(kind) => self.on_open_failed(kind),
            BatchEvent::LinesRead(input, read) => {
                self.disk.reading = false;
                self.files.input = Some(input);
                match read {
                    Ok(lines) => self.add_prefetched(lines),
                    Err(error) => self.on_open_failed(error.kind()),
                }
            }
            BatchEvent::LineEnded(asked, permit, done) => self.on_line_done(asked, permit, done),
            BatchEvent::Divided(divided) => self.on_divided(divided),
            BatchEvent::SegmentsRead(read) => self.on_segments_read(read),
            BatchEvent::GroupWritten(wrote) => self.on_group_written(*wrote),
            BatchEvent::Committed(BatchCommitOutcome::Durable) => self.on_committed(),
            BatchEvent::Committed(BatchCommitOutcome::ClaimLost) => self.on_claim_lost(),
            BatchEvent::Committed(BatchCommitOutcome::Failed) => self.shutdown.phase = RunnerPhase::Finished,
        }
    }

    /// Checks the time limits, the completion window, the key and the store.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        self.funds.on_tick();
        if self.shutdown.cancel_at.is_some_and(|at| now >= at) {
            if self.shutdown.reason.is_none() {
                self.in_flight.interrupted.cancel();
            }
            self.cancel_lines();
        }
        if self.shutdown.abort_at.is_some_and(|at| now >= at) {
            self.in_flight.abort.send_replace(true);
        }
        let unix = self.app.clock.unix_seconds();
        if unix >= self.record.expires {
            self.end_early(EarlyEndReason::Expired);
        }
        let principal = self.app.key_cache.find_principal(&self.record.key);
        match principal {
            Some(principal) if principal.is_valid_at(unix) => {
                let is_ready = self.app.batches.backend.health() == StoreHealth::Ready;
                self.pause = if is_ready { PauseReason::None } else { PauseReason::StoreFailing };
            }
            Some(principal) if principal.is_suspended() => self.pause = PauseReason::KeySuspended,
            _ => self.end_early(EarlyEndReason::KeyRevoked),
        }
        self.drop_obsolete_schedule();
        self.update_suspension();
        self.memory_limits = self.app.batches.memory_limits(&self.app, &self.record.account);
    }

    /// Returns true if no line starts for a long time: the batch is scheduled for later, or its key is suspended.
    fn is_waiting(&self) -> bool {
        let hour = self.record.scheduled.is_some_and(|hour| hour > self.app.clock.unix_seconds());
        self.lifecycle.state == LifecycleState::InProgress
            && self.record.slices.is_none()
            && (hour || self.pause == PauseReason::KeySuspended)
    }

    /// Releases the files and the memory share of a batch that waits, after all its results were committed. When the
    /// batch continues, it opens its files again, as after a restart. A slice that has only lines waiting for a retry
    /// has no memory share either: these lines count towards the limit of the next slice of the batch.
    fn update_suspension(&mut self) {
        let waits = self.is_waiting() && self.shutdown.reason.is_none();
        if waits && self.has_no_permits() && !self.disk.reading {
            (self.files.input, self.files.output) = (None, None);
            self.prefetched = PrefetchedLines::default();
            self.retries.clear();
            self.all_lines_started = false;
            self.app.batches.set_parked(&self.record.id, true);
        } else if !waits {
            let has_retries_only =
                self.all_lines_started && self.has_no_permits() && self.prefetched.lines.is_empty();
            self.app.batches.set_parked(&self.record.id, has_retries_only);
        }
    }

    fn on_command(&mut self, command: BatchCommand) {
        let (why, asker) = match command {
            BatchCommand::Cancel(asker) => (EarlyEndReason::Cancelled, asker),
            BatchCommand::InputDeleted(asker) => (EarlyEndReason::InputDeleted, asker),
            BatchCommand::End(request) => return self.end_early(end_reason(request)),
            BatchCommand::ClaimLost => return self.on_claim_lost(),
            // The claim is gone, but this runner has not ended the batch. So another gateway has ended it.
            BatchCommand::ClaimGone if !self.lifecycle.state.is_final() => return self.on_claim_lost(),
            BatchCommand::ClaimGone => return,
        };
        self.watchers.end_waiters.push(asker);
        self.end_early(why);
    }

    /// Ends the batch before its last line, unless it has ended already.
    pub(super) fn end_early(&mut self, why: EarlyEndReason) {
        if self.shutdown.reason.is_some() || self.lifecycle.state.is_final() {
            return;
        }
        self.shutdown.reason = Some(why);
        self.prefetched.lines.clear();
        self.prefetched.bytes = 0;
        self.retries.clear();
        self.cancel_lines();
    }

    pub(super) fn begin_stop(&mut self) {
        self.shutdown.start();
        self.shutdown.cancel_at = Some(Instant::now() + GRACE_PERIOD);
    }

    /// Cancels started lines because their results are no longer needed.
    fn cancel_lines(&mut self) {
        self.shutdown.cancel_at = None;
        self.in_flight.cancel.cancel();
        if self.shutdown.abort_at.is_none() {
            self.shutdown.abort_at = Some(Instant::now() + GRACE_PERIOD);
        }
    }

    /// Returns true if no line of the batch or of its slices is in flight, and no file is being read.
    pub(super) const fn is_idle(&self) -> bool {
        let are_slices_over = self.record.slices.is_none() || self.merge.is_complete;
        self.in_flight.lines == 0 && !self.disk.reading && are_slices_over
    }

    /// Returns true if the batch holds no permit: no line is in flight or waits for a commit.
    pub(super) fn has_no_permits(&self) -> bool {
        self.in_flight.lines == 0 && self.pending.lines.is_empty() && !self.disk.writing
    }

    /// Publishes the committed record.
    fn on_committed(&mut self) {
        self.disk.writing = false;
        self.committing.clear();
        if let Some(replaced) = self.files.replaced.take() {
            let files = self.app.files.clone();
            tokio::task::spawn_blocking(move || files.remove_contents(&replaced));
        }
        self.delete_merged_segment_files();
        let record = Arc::new(self.record.clone());
        self.watchers.published.send_replace(record.clone());
        if self.lifecycle.state.is_final() {
            if record.slice.is_none() {
                self.app.batches.log_end(&self.app, &record);
            }
            self.shutdown.phase = RunnerPhase::Finished;
            for asker in self.watchers.end_waiters.drain(..) {
                asker.send(record.clone()).ok();
            }
        }
    }
}

const fn end_reason(request: EndRequest) -> EarlyEndReason {
    match request {
        EndRequest::Cancelled => EarlyEndReason::Cancelled,
        EndRequest::InputDeleted => EarlyEndReason::InputDeleted,
        EndRequest::InvalidInput => EarlyEndReason::InvalidInput,
        EndRequest::OutputDamaged => EarlyEndReason::OutputDamaged,
        EndRequest::Expired => EarlyEndReason::Expired,
        EndRequest::KeyRevoked => EarlyEndReason::KeyRevoked,
    }
}
