//! Batches: files of requests, worked off in their own time.
//!
//! ```text
//! create ─▶ validating ─▶ in_progress ─▶ completed | failed | cancelled
//!                 a batch: lines read ahead ─▶ turns ─▶ line (as a request) ─▶ group ─▶ output file ─▶ one commit
//! ```
//! Each open batch is a task that owns its row: whoever wants something of it
//! tells it so. What is seen of a batch is what was committed. After a crash the
//! next start goes on from there: a line has one result and one charge, and only
//! lines that were at work are asked again.

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

/// How ids begin.
pub const PREFIX: &str = "batch_";
/// How long a caller waits for a batch to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a stop waits for batches, beyond what they give their lines.
const LAST: Duration = Duration::from_secs(30);
/// How long a file whose deletion was told of is not taken as an input.
const DELETING: Duration = Duration::from_secs(60);

/// What a batch may be told.
enum Tell {
    /// Its owner calls it off.
    Cancel(oneshot::Sender<Arc<BatchRecord>>),
    /// Its input is deleted.
    InputDeleted(oneshot::Sender<Arc<BatchRecord>>),
}

/// What a batch at work hears, and how it is seen.
type Entered = (mpsc::UnboundedReceiver<Tell>, watch::Sender<Arc<BatchRecord>>);

/// A batch that is not over.
struct Running {
    account: Box<str>,
    input: Box<str>,
    tell: mpsc::UnboundedSender<Tell>,
    seen: watch::Receiver<Arc<BatchRecord>>,
    /// It begins no line for now and holds nothing.
    parked: bool,
}

/// All batches.
pub struct Batches {
    store: BatchStore,
    engine: Arc<dyn Store>,
    running: Mutex<HashMap<Box<str>, Running>>,
    /// Inputs that are being deleted, and since when.
    deleting: Mutex<HashMap<Box<str>, Instant>>,
    turns: Turns,
    sharers: Sharers,
    /// Memory of large lines.
    large: LargeLines,
    /// Where lines run.
    threads: Mutex<Option<Threads>>,
    /// Where batches run.
    runtime: OnceLock<Handle>,
    stop: watch::Sender<bool>,
    /// `running` has every batch that is not over.
    resumed: AtomicBool,
    emptied: Notify,
}

impl Batches {
    /// The batches of a store; nothing runs yet.
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

    /// Goes on with every batch that is not over.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
    pub async fn start(house: &Arc<BatchContext>) -> Result<(), String> {
        let batches = &house.batches;
        let threads = Threads::start(house.live().settings.threads)
            .map_err(|error| format!("The threads for batches cannot be started: {error}."))?;
        *batches.threads.lock() = Some(threads);
        batches.runtime.set(Handle::current()).ok();
        batches.stop.send_replace(false);
        Self::resume(house).await
    }

    /// Goes on with every batch that is not over and not at work.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
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

    /// Stops: no line is begun, those at work get a moment, what is there is kept. False if some did not stop.
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

    /// How many hold lines and files: all but those that wait for their hour or their key.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.running.lock().values().filter(|running| !running.parked).count()
    }

    fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs a line.
    fn serve<F: Future<Output = ()> + Send + 'static>(&self, line: F) {
        if let Some(threads) = &*self.threads.lock() {
            threads.serve(line);
        }
    }

    /// A batch is at work from now on; `None` if its account has `most` of them already.
    fn enter(&self, record: &BatchRecord, most: usize) -> Option<Entered> {
        let mut all = self.running.lock();
        // Two processes that leave may ask for the same one at the same time.
        if all.contains_key(record.id.as_str()) {
            return None;
        }
        // One that has ended is still here for a moment, when its client may know already.
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

    /// What a batch of this account may hold in memory.
    fn share(&self, house: &BatchContext, account: &str) -> Share {
        self.sharers.share(house.live().settings.batches.memory, account)
    }

    /// Whether a batch holds anything and has a share.
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

    /// A batch is no longer at work.
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
