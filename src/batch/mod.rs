//! Batches: files of requests that run asynchronously.
//!
//! ```text
//! create ─▶ validating ─▶ in_progress ─▶ completed | failed | cancelled
//!                 a batch: prefetched lines ─▶ scheduler ─▶ line (as a request) ─▶ group ─▶ output file ─▶ one commit
//! ```
//! Each open batch is a task that owns its row; others send it commands. Clients see the last committed state of a
//! batch. After a crash the next start continues from there: a line has one result and one charge, and only lines
//! that were in flight are sent again.

mod api;
pub mod api_object;
mod carbon_schedule;
mod commit;
mod context;
mod errors;
mod file_references;
mod funds_backoff;
mod input;
mod large;
mod lines;
mod memory_budget;
mod open;
mod prefetch;
mod retry_queue;
mod runner;
mod runner_state;
mod scheduler;
mod stats;

pub use context::{BatchContext, LineAsk, LineDone, LineExecutor};
pub use errors::no_file;

use crate::net::executor::Threads;
use crate::telemetry::log;
use large::LargeLines;
use memory_budget::{Share, Sharers};
use parking_lot::Mutex;
use penstock_storage::Store;
use penstock_storage::batches::{BatchRecord, BatchStore};
use scheduler::Turns;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

/// Prefix of batch IDs.
pub const PREFIX: &str = "batch_";
/// Longest time a caller waits for a batch to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time a shutdown waits for batches, beyond the grace period of their lines.
const LAST: Duration = Duration::from_secs(30);
/// Time for which a file whose deletion was announced is refused as an input.
const DELETING: Duration = Duration::from_secs(60);

/// Command to a running batch.
enum Tell {
    /// Cancellation by the client.
    Cancel(oneshot::Sender<Arc<BatchRecord>>),
    /// Deletion of the input file.
    InputDeleted(oneshot::Sender<Arc<BatchRecord>>),
}

/// Command receiver and state publisher of a running batch.
type Entered = (mpsc::UnboundedReceiver<Tell>, watch::Sender<Arc<BatchRecord>>);

/// Batch that has not ended.
struct Running {
    account: Box<str>,
    input: Box<str>,
    tell: mpsc::UnboundedSender<Tell>,
    seen: watch::Receiver<Arc<BatchRecord>>,
    /// True if the batch starts no lines for now and holds no memory.
    parked: bool,
}

/// All batches of the gateway.
pub struct Batches {
    store: BatchStore,
    engine: Arc<dyn Store>,
    running: Mutex<HashMap<Box<str>, Running>>,
    /// Input files that are being deleted, with the start time of the deletion.
    deleting: Mutex<HashMap<Box<str>, Instant>>,
    turns: Turns,
    sharers: Sharers,
    /// Memory of large lines.
    large: LargeLines,
    /// Threads that run the lines.
    threads: Mutex<Option<Threads>>,
    /// Runtime that runs the batch tasks.
    runtime: OnceLock<Handle>,
    stop: watch::Sender<bool>,
    /// True if `running` contains every batch that has not ended.
    resumed: AtomicBool,
    emptied: Notify,
}

impl Batches {
    /// Returns the batches of a store; none runs yet.
    #[must_use]
    pub fn new(engine: Arc<dyn Store>) -> Self {
        Self {
            store: BatchStore::new(engine.clone()),
            engine,
            running: Mutex::default(),
            deleting: Mutex::default(),
            turns: Turns::default(),
            sharers: Sharers::default(),
            large: LargeLines::default(),
            threads: Mutex::default(),
            runtime: OnceLock::new(),
            stop: watch::Sender::new(false),
            resumed: AtomicBool::new(false),
            emptied: Notify::new(),
        }
    }

    /// Starts the threads and resumes every batch that has not ended.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the threads cannot be started or the batches cannot be read.
    pub async fn start(house: &Arc<BatchContext>) -> Result<(), String> {
        let batches = &house.batches;
        let threads = Threads::start(house.live().settings.threads)
            .map_err(|error| format!("The threads for batches cannot be started: {error}."))?;
        *batches.threads.lock() = Some(threads);
        batches.runtime.set(Handle::current()).ok();
        batches.stop.send_replace(false);
        Self::resume(house).await
    }

    /// Resumes every batch that has not ended and is not running.
    ///
    /// # Errors
    /// Returns a sentence for the operator if the batches cannot be read.
    pub async fn resume(house: &Arc<BatchContext>) -> Result<(), String> {
        let batches = &house.batches;
        let store = batches.store.clone();
        let read = move || {
            if let Err(error) = store.build_account_index() {
                let why = error.to_string();
                log::event(log::error(), "batches_not_indexed", &[("why", &why)]);
            }
            store.list_unfinished()
        };
        let open = crate::storage::stores::off_thread(read).await;
        let mut open = open.map_err(|error| format!("The batches cannot be read: {error}."))?;
        open.retain(|record| !batches.running.lock().contains_key(record.id.as_str()));
        if !open.is_empty() {
            log::event(log::info(), "batches_resumed", &[("count", &open.len().to_string())]);
        }
        for record in open {
            if let Some((told, seen)) = batches.enter(&record, usize::MAX) {
                batches.run(house, record, told, seen);
            }
        }
        batches.resumed.store(true, Ordering::Release);
        Ok(())
    }

    /// Stops: no line starts, lines in flight get a grace period, and finished results are committed. Returns false
    /// if some batches did not stop.
    pub async fn close(&self) -> bool {
        self.resumed.store(false, Ordering::Release);
        self.stop.send_replace(true);
        let emptied = async {
            loop {
                let emptied = self.emptied.notified();
                tokio::pin!(emptied);
                emptied.as_mut().enable();
                if self.running.lock().is_empty() {
                    return;
                }
                emptied.await;
            }
        };
        let stopped = timeout(LAST, emptied).await.is_ok();
        self.threads.lock().take();
        stopped
    }

    /// Number of batches that hold lines and files: all except those that wait for their scheduled hour or
    /// for a suspended key.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.running.lock().values().filter(|running| !running.parked).count()
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs a line on the batch threads.
    fn serve<F: Future<Output = ()> + Send + 'static>(&self, line: F) {
        if let Some(threads) = &*self.threads.lock() {
            threads.serve(line);
        }
    }

    /// Registers a running batch; `None` if its account already has `most` of them.
    fn enter(&self, record: &BatchRecord, most: usize) -> Option<Entered> {
        let mut all = self.running.lock();
        // Two processes that shut down may resume the same batch at the same time.
        if all.contains_key(record.id.as_str()) {
            return None;
        }
        // A batch that has ended is still registered for a moment, while its client may know already.
        let open = |running: &&Running| {
            *running.account == *record.account && !running.seen.borrow().state.is_final()
        };
        if all.values().filter(open).count() >= most {
            return None;
        }
        let (tell, told) = mpsc::unbounded_channel();
        let (sender, seen) = watch::channel(Arc::new(record.clone()));
        let running = Running {
            account: record.account.as_str().into(),
            input: record.input.as_str().into(),
            tell,
            seen,
            parked: false,
        };
        self.sharers.add(&running.account);
        all.insert(record.id.as_str().into(), running);
        Some((told, sender))
    }

    fn run(
        &self,
        house: &Arc<BatchContext>,
        record: BatchRecord,
        told: mpsc::UnboundedReceiver<Tell>,
        seen: watch::Sender<Arc<BatchRecord>>,
    ) {
        match self.runtime.get().filter(|_| !*self.stop.borrow()) {
            Some(runtime) => {
                runtime.spawn(runner::run(house.clone(), record, told, seen));
            }
            None => self.gone(&record.id),
        }
    }

    /// Memory limits of a batch of this account.
    fn share(&self, house: &BatchContext, account: &str) -> Share {
        self.sharers.share(house.live().settings.batches.memory, account)
    }

    /// Marks a batch as parked, which frees its memory share, or as active again.
    fn park(&self, id: &str, parked: bool) {
        if let Some(running) = self.running.lock().get_mut(id)
            && running.parked != parked
        {
            running.parked = parked;
            match parked {
                true => self.sharers.remove(&running.account),
                false => self.sharers.add(&running.account),
            }
        }
    }

    /// Removes a batch that no longer runs.
    fn gone(&self, id: &str) {
        let mut running = self.running.lock();
        if let Some(gone) = running.remove(id).filter(|gone| !gone.parked) {
            self.sharers.remove(&gone.account);
        }
        if running.is_empty() {
            self.emptied.notify_waiters();
        }
    }
}
