//! Batches: files of requests that run asynchronously.
//!
//! ```text
//! create ─▶ validating ─▶ in_progress ─▶ completed | failed | cancelled
//!                 a batch: prefetched lines ─▶ scheduler ─▶ line (as a request) ─▶ group ─▶ output file ─▶ one commit
//! ```
//! Each open batch is a task that owns its record; other tasks send it commands. Clients see the last committed state
//! of a batch. After a crash, the next start of the gateway continues from that state: a line gets one result and one
//! charge, and only lines that were in flight are sent again. In a fleet, each batch is claimed by one gateway
//! (`claims.rs`), and a large one is divided into slices that several gateways run (`slicing.rs`). A background
//! response is a batch of one request without files (`background.rs`).

mod api;
pub mod api_object;
mod background;
mod background_end;
mod background_run;
mod background_watch;
mod carbon_schedule;
mod claimed_commit;
mod claims;
mod commit;
mod context;
mod errors;
mod file_references;
mod fleet_requests;
#[cfg(test)]
mod fleet_tests;
mod funds_backoff;
mod input;
mod large_lines;
mod line_execution;
mod memory_limits;
mod open_files;
mod prefetch;
mod result_write;
mod retry_queue;
mod runner;
mod runner_state;
mod scheduler;
mod slice_claims;
mod slice_merge;
mod slice_result;
mod slicing;
mod stats;
mod uncertain_insert;

pub use background::{NewBackgroundResponse, ResponseWatcher};
pub use context::{
    BatchContext, LineDisposition, LineExecutor, LineOrigin, LineRequest, LineResponse,
    PreassignedResponseIdentity,
};
pub use errors::input_not_found;

use crate::fleet::FleetMember;
use crate::net::executor::WorkerThreads;
use claims::{ClaimCheckState, HeldClaim, TakeoverKind};
use large_lines::LargeLineMemory;
use memory_limits::{BatchMemoryLimits, BatchMemoryShares};
use parking_lot::Mutex;
use penstock_storage::batches::{BatchClaim, BatchRecord, BatchStore, EndRequest, is_slice_id};
use penstock_storage::{Store, StoreError};
use retry_queue::RetryLoad;
use runner::RunnableBatch;
use scheduler::FairScheduler;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

/// Prefix of batch IDs.
pub const BATCH_ID_PREFIX: &str = "batch_";
/// Longest time a caller waits for a batch to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time a shutdown waits for batches; it includes the grace period of their lines.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which a file may not become an input after its deletion was announced.
const DELETION_GUARD: Duration = Duration::from_secs(60);

/// Command to a running batch.
enum BatchCommand {
    /// Cancellation by the client. The last record is sent to the channel after the end of the batch.
    Cancel(oneshot::Sender<Arc<BatchRecord>>),
    /// Deletion of the input file. The last record is sent to the channel after the end of the batch.
    InputDeleted(oneshot::Sender<Arc<BatchRecord>>),
    /// Request of another gateway of the fleet.
    End(EndRequest),
    /// Loss of the claim: another gateway has taken it.
    ClaimLost,
    /// Claim that does not exist any more: the last commit of the batch, by this or another gateway, has removed it. A
    /// background response is registered before its claim exists.
    ClaimGone,
}

/// Command receiver and state publisher of a running batch.
type BatchChannels = (mpsc::UnboundedReceiver<BatchCommand>, watch::Sender<Arc<BatchRecord>>);

/// Batch that is registered in this process and has not ended.
struct RunningBatch {
    account: Box<str>,
    input: Box<str>,
    commands: mpsc::UnboundedSender<BatchCommand>,
    published: watch::Receiver<Arc<BatchRecord>>,
    /// True if the batch starts no lines for now and has no share of the memory.
    parked: bool,
    /// Claim of this process; `None` if no other process may run the batch.
    claim: Option<BatchClaim>,
    /// True for a slice whose lines have all started.
    all_lines_started: bool,
    /// Lines that wait for a retry, together with those of the other slices of the same batch.
    retry_load: Arc<RetryLoad>,
}

/// Manager of all batches and background responses of the gateway.
pub struct BatchManager {
    store: BatchStore,
    backend: Arc<dyn Store>,
    fleet: Arc<FleetMember>,
    claims: ClaimCheckState,
    /// Number of lines of a slice.
    slice_lines: u32,
    /// True if all other live members of the fleet run slices.
    peers_run_slices: AtomicBool,
    running: Mutex<HashMap<Box<str>, RunningBatch>>,
    /// Input files that are being deleted, with the start time of the deletion.
    deleting: Mutex<HashMap<Box<str>, Instant>>,
    scheduler: FairScheduler,
    /// Scheduler of background responses.
    response_scheduler: FairScheduler,
    memory_shares: BatchMemoryShares,
    /// Memory of large lines.
    large_lines: LargeLineMemory,
    /// Threads that run the lines.
    threads: Mutex<Option<WorkerThreads>>,
    /// Runtime that runs the batch tasks.
    runtime: OnceLock<Handle>,
    stop: watch::Sender<bool>,
    /// True if `running` contains every batch that has not ended.
    resumed: AtomicBool,
    drained: Notify,
}

impl BatchManager {
    /// Creates a manager of the batches in a store that the members of `fleet` share; no batch runs yet.
    #[must_use]
    pub fn new(backend: Arc<dyn Store>, fleet: Arc<FleetMember>) -> Self {
        Self {
            store: BatchStore::new(backend.clone()),
            backend,
            fleet,
            claims: ClaimCheckState::default(),
            slice_lines: slice_claims::SLICE_LINES,
            peers_run_slices: AtomicBool::new(false),
            running: Mutex::default(),
            deleting: Mutex::default(),
            scheduler: FairScheduler::default(),
            response_scheduler: FairScheduler::default(),
            memory_shares: BatchMemoryShares::default(),
            large_lines: LargeLineMemory::default(),
            threads: Mutex::default(),
            runtime: OnceLock::new(),
            stop: watch::Sender::new(false),
            resumed: AtomicBool::new(false),
            drained: Notify::new(),
        }
    }

    /// Starts the threads and resumes every batch that has not ended.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the threads cannot be started or the batches cannot be read.
    pub async fn start(context: &Arc<BatchContext>) -> Result<(), String> {
        Self::start_threads(context)?;
        Self::resume(context).await?;
        if context.batches.fleet.has_fleet() {
            Self::start_claim_task(context);
        }
        Ok(())
    }

    fn start_threads(context: &Arc<BatchContext>) -> Result<(), String> {
        let batches = &context.batches;
        let threads = WorkerThreads::start(context.config_snapshot().settings.threads)
            .map_err(|error| format!("The threads for batches cannot be started: {error}."))?;
        *batches.threads.lock() = Some(threads);
        batches.runtime.set(Handle::current()).ok();
        batches.stop.send_replace(false);
        Ok(())
    }

    /// Resumes every batch that has not ended and is not running; in a fleet, only the batches that belong to this
    /// member.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the batches cannot be read.
    pub async fn resume(context: &Arc<BatchContext>) -> Result<(), String> {
        let batches = &context.batches;
        if batches.fleet.has_fleet() {
            return Self::claim_and_resume_batches(context).await;
        }
        let (store, own) = (batches.store.clone(), context.clone());
        let read = move || {
            if let Err(error) = store.build_account_index() {
                let why = error.to_string();
                tracing::error!(name: "batches_not_indexed", why);
            }
            Self::cancel_noted_batches(&own)?;
            let mut open = store.list_unfinished()?;
            // Slices exist if a fleet has divided batches before this gateway became the only one.
            open.extend(own.batches.list_unfinished_slices()?);
            let ends = own.batches.requested_ends(&open)?;
            Ok::<_, StoreError>((open, ends))
        };
        let open = crate::storage::stores::run_blocking(read).await;
        let (mut open, ends) = open.map_err(|error| format!("The batches cannot be read: {error}."))?;
        open.retain(|record| !batches.running.lock().contains_key(record.id.as_str()));
        if !open.is_empty() {
            tracing::info!(name: "batches_resumed", count = %open.len());
        }
        let mut registered = Vec::new();
        for record in open {
            let channels = batches.register(&record, usize::MAX, None);
            registered.extend(channels.map(|channels| (record, channels)));
        }
        // The runners handle these end requests before they start a line.
        for (id, request) in ends {
            if let Some(batch) = batches.running.lock().get(id.as_str()) {
                batch.commands.send(BatchCommand::End(request)).ok();
            }
        }
        for (record, (commands, publisher)) in registered {
            batches.spawn_batch(context, RunnableBatch { record, claim: None }, commands, publisher);
        }
        batches.resumed.store(true, Ordering::Release);
        Ok(())
    }

    /// Stops all batches: no line starts, lines in flight get a grace period, and finished results are committed.
    /// Returns false if some batches did not stop.
    pub async fn close(&self) -> bool {
        self.resumed.store(false, Ordering::Release);
        self.stop.send_replace(true);
        let emptied = async {
            loop {
                let emptied = self.drained.notified();
                tokio::pin!(emptied);
                emptied.as_mut().enable();
                if self.running.lock().is_empty() {
                    return;
                }
                emptied.await;
            }
        };
        let stopped = timeout(STOP_TIMEOUT, emptied).await.is_ok();
        self.threads.lock().take();
        stopped
    }

    /// Returns the number of batches and slices that have lines in memory and open files: all except background
    /// responses, batches that wait for their scheduled hour or for a suspended key, and slices whose remaining lines
    /// wait for a retry.
    #[must_use]
    pub fn active_batch_count(&self) -> usize {
        self.running.lock().values().filter(|running| !running.parked).count()
    }

    fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs a line on the batch threads. If these threads have already ended, drops the line.
    fn spawn_line<F: Future<Output = ()> + Send + 'static>(&self, line: F) {
        if let Some(threads) = &*self.threads.lock() {
            threads.spawn_pinned(line);
        }
    }

    /// Registers a running batch. Returns `None` if it is already registered, or if its account already has
    /// `max_batches` batches. Background responses are counted separately from batches, and get no share of the memory
    /// for lines.
    fn register(
        &self,
        record: &BatchRecord,
        max_batches: usize,
        claim: Option<BatchClaim>,
    ) -> Option<BatchChannels> {
        let mut all = self.running.lock();
        // Two processes that hand over to this one may both ask it to resume the same batch.
        if all.contains_key(record.id.as_str()) {
            return None;
        }
        // A batch that has just ended is still registered for a moment. It does not count, because its client may
        // already know that it has ended.
        let open = |running: &&RunningBatch| {
            let other = running.published.borrow();
            *running.account == *record.account
                && !other.state.is_final()
                && other.slice.is_none()
                && other.background.is_some() == record.background.is_some()
        };
        if all.values().filter(open).count() >= max_batches {
            return None;
        }
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (publisher, published) = watch::channel(Arc::new(record.clone()));
        let running = RunningBatch {
            account: record.account.as_str().into(),
            input: record.input.as_str().into(),
            commands: command_sender,
            published,
            parked: record.background.is_some(),
            claim,
            all_lines_started: false,
            retry_load: slice_claims::shared_retry_load(&all, &record.id),
        };
        if !running.parked {
            self.memory_shares.add_batch(&running.account);
        }
        all.insert(record.id.as_str().into(), running);
        Some((commands, publisher))
    }

    fn spawn_batch(
        &self,
        context: &Arc<BatchContext>,
        start: RunnableBatch,
        commands: mpsc::UnboundedReceiver<BatchCommand>,
        publisher: watch::Sender<Arc<BatchRecord>>,
    ) {
        match self.runtime.get().filter(|_| !*self.stop.borrow()) {
            Some(runtime) if start.record.background.is_some() => {
                runtime.spawn(background_run::run_response(context.clone(), start, (commands, publisher)));
            }
            Some(runtime) => {
                runtime.spawn(runner::run_batch(context.clone(), start, commands, publisher));
            }
            None => self.unregister(&start.record.id),
        }
    }

    /// Returns the counter of the lines that wait for a retry in a registered batch.
    fn retry_load(&self, id: &str) -> Arc<RetryLoad> {
        self.running.lock().get(id).map(|running| running.retry_load.clone()).unwrap_or_default()
    }

    /// Returns the memory limits of a batch of this account.
    fn memory_limits(&self, context: &BatchContext, account: &str) -> BatchMemoryLimits {
        self.memory_shares.limits_for_batch(context.config_snapshot().settings.batches.memory, account)
    }

    /// Marks a batch as parked, which frees its memory share, or as active again.
    fn set_parked(&self, id: &str, parked: bool) {
        if let Some(running) = self.running.lock().get_mut(id)
            && running.parked != parked
        {
            running.parked = parked;
            match parked {
                true => self.memory_shares.remove_batch(&running.account),
                false => self.memory_shares.add_batch(&running.account),
            }
        }
    }

    /// Removes a batch that no longer runs.
    fn unregister(&self, id: &str) {
        let mut running = self.running.lock();
        if let Some(gone) = running.remove(id).filter(|gone| !gone.parked) {
            self.memory_shares.remove_batch(&gone.account);
        }
        if running.is_empty() {
            self.drained.notify_waiters();
        }
        drop(running);
        if is_slice_id(id) {
            self.claims.search.notify_one();
        }
    }
}
