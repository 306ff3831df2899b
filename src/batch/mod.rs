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

mod ahead;
mod commit;
mod hours;
mod input;
mod later;
mod lines;
mod open;
mod refusals;
mod runs;
mod share;
mod turns;
pub mod view;
mod work;

pub use refusals::no_file;

use crate::files::off_thread;
use crate::house::House;
use crate::keyring::Grant;
use crate::object_id;
use crate::observe::log;
use crate::threads::Threads;
use parking_lot::Mutex;
use penstock_batch::create::Create;
use penstock_contract::{Code, Refusal};
use penstock_storage::batches::{BatchPage, BatchRecord, BatchState, BatchStore};
use penstock_storage::files::FileStore;
use penstock_storage::{Batch, Health, Space, Store, StoreError};
use refusals::{enough, none, refused, unkept};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use turns::Turns;

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
}

/// All batches.
pub struct Batches {
    store: BatchStore,
    engine: Arc<dyn Store>,
    running: Mutex<HashMap<Box<str>, Running>>,
    /// Inputs that are being deleted, and since when.
    deleting: Mutex<HashMap<Box<str>, Instant>>,
    turns: Turns,
    /// Where lines run.
    threads: Mutex<Option<Threads>>,
    /// Where batches run.
    runtime: OnceLock<Handle>,
    stop: watch::Sender<bool>,
    emptied: Notify,
}

/// How batches are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Open ones by state: being validated, at work, waiting for their hour.
    pub open: [usize; 3],
    /// Lines that have no result yet.
    pub lines: u64,
    /// Lines at work.
    pub working: usize,
    /// Age of the oldest that does not wait for its hour, in seconds.
    pub oldest: u64,
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
            threads: Mutex::default(),
            runtime: OnceLock::new(),
            stop: watch::Sender::new(false),
            emptied: Notify::new(),
        }
    }

    /// Goes on with every batch that is not over.
    ///
    /// # Errors
    /// One sentence that says what is in the way.
    pub async fn start(house: &Arc<House>) -> Result<(), String> {
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
    pub async fn resume(house: &Arc<House>) -> Result<(), String> {
        let batches = &house.batches;
        let store = batches.store.clone();
        let open = crate::vault::off_thread(move || store.open()).await;
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
        Ok(())
    }

    /// Stops: no line is begun, those at work get a moment, what is there is kept. False if some did not stop.
    pub async fn close(&self) -> bool {
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
        if all.values().filter(|running| *running.account == *record.account).count() >= most {
            return None;
        }
        let (tell, told) = mpsc::unbounded_channel();
        let (sender, seen) = watch::channel(Arc::new(record.clone()));
        let running = Running {
            account: record.account.as_str().into(),
            input: record.input.as_str().into(),
            tell,
            seen,
        };
        all.insert(record.id.as_str().into(), running);
        Some((told, sender))
    }

    fn run(
        &self,
        house: &Arc<House>,
        record: BatchRecord,
        told: mpsc::UnboundedReceiver<Tell>,
        seen: watch::Sender<Arc<BatchRecord>>,
    ) {
        match self.runtime.get().filter(|_| !*self.stop.borrow()) {
            Some(runtime) => {
                runtime.spawn(work::run(house.clone(), record, told, seen));
            }
            None => self.gone(&record.id),
        }
    }

    /// What each of them may hold in memory.
    fn share(&self, house: &House) -> share::Share {
        let open = self.running.lock().len();
        share::Share::of(house.live().settings.batches.memory, open)
    }

    /// A batch is no longer at work.
    fn gone(&self, id: &str) {
        let mut running = self.running.lock();
        running.remove(id);
        if running.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Makes a batch of an uploaded file.
    ///
    /// # Errors
    /// The file cannot be its input, the account has enough batches, the store takes nothing now.
    pub async fn create(
        house: &Arc<House>,
        grant: &Grant,
        asked: Create,
    ) -> Result<Arc<BatchRecord>, Refusal> {
        let batches = &house.batches;
        batches.may_create(house)?;
        let now = house.clock.now();
        let record = BatchRecord {
            id: object_id::new(PREFIX, now),
            key: grant.public_id.to_string(),
            account: grant.account.id.to_string(),
            endpoint: asked.endpoint.to_owned(),
            input: asked.input_file_id,
            window: asked.completion_window,
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            expires: now.as_secs().saturating_add(asked.window),
            metadata: asked.metadata,
            state: BatchState::Validating,
            ..BatchRecord::default()
        };
        // Known before it is kept: from here on a deletion of its input finds it, or is found.
        let most = house.live().settings.batches.open;
        let (told, seen) = batches.enter(&record, most).ok_or_else(|| enough(most))?;
        if batches.is_deleting(&record.input) {
            batches.gone(&record.id);
            return Err(no_file());
        }
        let (store, kept) = (batches.store.clone(), record.clone());
        let input = Batch::new().present(Space::Files, FileStore::place(&record.input));
        let inserted = tokio::task::spawn_blocking(move || store.insert(&kept, input)).await;
        if let Some(refusal) = refused(inserted.unwrap_or(Err(StoreError::Stuck))) {
            batches.gone(&record.id);
            return Err(refusal);
        }
        log::event(
            log::info(),
            "batch_created",
            &[("batch", &record.id), ("key", &record.key), ("endpoint", &record.endpoint)],
        );
        batches.run(house, record.clone(), told, seen);
        Ok(Arc::new(record))
    }

    fn may_create(&self, house: &House) -> Result<(), Refusal> {
        // A process that hands over keeps the batch for the next one.
        let shut = house.is_draining() && !house.has_left();
        match self.engine.health() {
            Health::Full => Err(Refusal::new(Code::StorageFull)),
            Health::Ready if !shut && !house.ledger.failing() => Ok(()),
            _ => Err(unkept()),
        }
    }

    fn is_deleting(&self, file: &str) -> bool {
        self.deleting.lock().get(file).is_some_and(|since| since.elapsed() < DELETING)
    }

    /// A batch of this key.
    ///
    /// # Errors
    /// 404 if there is none, whoever else has one of this id.
    pub async fn get(&self, key: &str, id: &str) -> Result<Arc<BatchRecord>, Refusal> {
        let seen = self.running.lock().get(id).map(|running| running.seen.borrow().clone());
        let record = match seen {
            Some(record) => Some(record),
            None if !object_id::is(PREFIX, id) => None,
            None => {
                let (store, id) = (self.store.clone(), id.to_owned());
                off_thread(move || Ok(store.get(&id)?)).await?.map(Arc::new)
            }
        };
        record.filter(|record| record.key == key).ok_or_else(none)
    }

    /// Batches of a key, the newest first, behind the one of the id `after`.
    ///
    /// # Errors
    /// `after` names no batch of this key.
    pub async fn list(&self, key: &str, after: Option<&str>, limit: usize) -> Result<BatchPage, Refusal> {
        let after = match after {
            None => None,
            Some(id) => Some(self.get(key, id).await.map_err(|why| match why.code {
                Code::NotFound => {
                    Refusal::invalid("after", "after: expected the id of a batch of this API key")
                }
                _ => why,
            })?),
        };
        let (store, key) = (self.store.clone(), key.to_owned());
        Ok(off_thread(move || Ok(store.list(&key, after.as_deref(), limit)?)).await?)
    }

    /// Calls a batch off. When it returns, nothing of it is at work.
    ///
    /// # Errors
    /// 404 if there is none of this key, 409 if it has ended otherwise.
    pub async fn cancel(&self, key: &str, id: &str) -> Result<Arc<BatchRecord>, Refusal> {
        let mut record = self.get(key, id).await?;
        if !record.state.is_end() {
            let (asker, ended) = oneshot::channel();
            if let Some(running) = self.running.lock().get(id) {
                running.tell.send(Tell::Cancel(asker)).ok();
            }
            record = match timeout(PATIENCE, ended).await {
                Ok(Ok(record)) => record,
                // It ended at this very moment, or the house stops.
                Ok(Err(_)) => self.get(key, id).await?,
                Err(_) => return Err(unkept()),
            };
        }
        match record.state {
            BatchState::Cancelled => Ok(record),
            BatchState::Completed | BatchState::Failed => {
                let state = view::state(record.state).name();
                let message = format!("This batch has ended and cannot be cancelled: it is {state}.");
                Err(Refusal::because(Code::Conflict, message).with("status", state))
            }
            _ => Err(unkept()),
        }
    }

    /// How they are.
    #[must_use]
    pub fn standing(&self, now: u64) -> Standing {
        let mut standing = Standing { working: self.turns.taken(), ..Standing::default() };
        for running in self.running.lock().values() {
            let record = running.seen.borrow();
            let waits = record.scheduled.is_some_and(|hour| hour > now);
            let place = match (record.state, waits) {
                (BatchState::Validating, _) => 0,
                (_, false) => 1,
                (_, true) => 2,
            };
            if let Some(count) = standing.open.get_mut(place) {
                *count += 1;
            }
            let counts = &record.counts;
            standing.lines += u64::from(counts.total.saturating_sub(counts.completed + counts.failed));
            if !waits {
                let since = record.scheduled.unwrap_or(record.created_ms / 1_000);
                standing.oldest = standing.oldest.max(now.saturating_sub(since));
            }
        }
        standing
    }

    /// A batch ended: its line and its counts.
    fn told_end(&self, house: &House, record: &BatchRecord) {
        let state = view::state(record.state).name();
        let counts = &record.counts;
        house.metrics.batches.ended(state, counts.cancelled, counts.expired);
        let number = |count: u32| count.to_string();
        let why = record.errors.first().map_or("", |error| error.code.as_str());
        log::event(
            log::info(),
            "batch_ended",
            &[
                ("batch", &record.id),
                ("key", &record.key),
                ("status", state),
                ("why", why),
                ("lines", &number(counts.total)),
                ("completed", &number(counts.completed)),
                ("failed", &number(counts.failed)),
            ],
        );
    }
}
