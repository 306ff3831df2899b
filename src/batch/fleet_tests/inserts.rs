//! Tests of batch inserts for which the store reports an error, although it has committed the batch or commits it
//! later.

use super::*;
use penstock_storage::{
    RowPage, SnapshotRow, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome,
};

/// Store that commits a transaction but reports an error, or that reports an error first and commits later.
#[derive(Debug)]
struct LostAnswers {
    inner: Arc<dyn Store>,
    /// Error that is reported for the next transaction, although the transaction is committed.
    next_error: Mutex<Option<StoreError>>,
    /// True while transactions stay in `queue` and their callers receive an error.
    holds: AtomicBool,
    queue: Mutex<Vec<Transaction>>,
    /// True if reads fail after `next_error` was reported.
    then_fails: AtomicBool,
    fails: AtomicBool,
}

impl Store for LostAnswers {
    fn get(&self, table: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if self.fails.load(Ordering::Acquire) { Err(StoreError::Stuck) } else { self.inner.get(table, key) }
    }

    fn scan(
        &self,
        table: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.inner.scan(table, prefix, after, limit)
    }

    fn scan_back(
        &self,
        table: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.inner.scan_back(table, prefix, before, limit)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        if self.holds.load(Ordering::Acquire) {
            self.queue.lock().push(batch);
            return Err(StoreError::Stuck);
        }
        self.inner.apply(batch)?;
        let Some(error) = self.next_error.lock().take() else { return Ok(()) };
        self.fails.store(self.then_fails.load(Ordering::Acquire), Ordering::Release);
        Err(error)
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.copy_rows(sink)
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        self.inner.verify_with_progress(on_rows_read)
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Ready
    }
}

/// Gateway whose store loses answers.
struct Unsure {
    store: Arc<LostAnswers>,
    member: Member,
}

impl Unsure {
    fn start(pair: &Pair, fleet: Arc<FleetMember>) -> Self {
        let inner = pair.app.stores.store.clone();
        let store = Arc::new(LostAnswers {
            inner: inner.clone(),
            next_error: Mutex::default(),
            holds: AtomicBool::new(false),
            queue: Mutex::default(),
            then_fails: AtomicBool::new(false),
            fails: AtomicBool::new(false),
        });
        let files = FileStore::new(inner);
        let files =
            FileManager::open_shared_folder(&pair.app.config_snapshot().settings.files, files).unwrap();
        let batches = BatchManager::new(store.clone(), fleet.clone());
        let member = Member::start(&pair.app, (files, batches), fleet, &pair.calls);
        member.executor.permits.add_permits(1_000);
        Self { store, member }
    }

    /// Creates a batch whose insert is committed, although the store reports the error `answer`. Later reads of the
    /// record fail unless `is_readable` is true.
    async fn create(
        &self,
        pair: &Pair,
        answer: StoreError,
        is_readable: bool,
    ) -> Result<Arc<BatchRecord>, ErrorCode> {
        let request = CreateBatchRequest {
            input_file_id: pair.upload(0, 3).unwrap(),
            endpoint: "/v1/rerank",
            completion_window: "24h".to_owned(),
            window_seconds: 86_400,
            metadata: Vec::new(),
        };
        self.store.then_fails.store(!is_readable, Ordering::Release);
        *self.store.next_error.lock() = Some(answer);
        let created = BatchManager::create(&self.member.context, &pair.principal, request).await;
        created.map_err(|refusal| refusal.code)
    }

    /// Creates a batch whose insert is reported as failed and stays in the store's queue; returns the id of the
    /// batch.
    async fn create_later(&self, pair: &Pair) -> String {
        self.store.holds.store(true, Ordering::Release);
        let refused = self.create(pair, StoreError::Stuck, true).await.unwrap_err();
        assert_eq!(refused, ErrorCode::Unavailable);
        assert!(pair.members[0].context.batches.store.list_unfinished().unwrap().is_empty());
        let noted = noted_ids(pair);
        assert_eq!(noted.len(), 1);
        noted[0].clone()
    }

    /// Commits the first `count` transactions of the queue.
    fn commit_queue(&self, count: usize) {
        self.store.holds.store(false, Ordering::Release);
        for transaction in self.store.queue.lock().drain(..).take(count) {
            self.store.inner.apply(transaction).ok();
        }
    }
}

/// Returns the ids of the batches that a note asks the next process to cancel.
fn noted_ids(pair: &Pair) -> Vec<String> {
    let folder = pair.app.config_snapshot().settings.storage.path.join("uncertain-batches");
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the id of the only batch that has not ended.
fn unfinished(pair: &Pair) -> String {
    let open = pair.members[0].context.batches.store.list_unfinished().unwrap();
    assert_eq!(open.len(), 1);
    open[0].id.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_stored_despite_an_error_is_created() {
    let pair = Pair::start().await;
    let gateway = Unsure::start(&pair, FleetMember::without_fleet());
    let record = gateway.create(&pair, StoreError::Full, true).await.unwrap();
    assert_eq!(pair.ended(&record.id).await.state, BatchState::Completed);
    assert!(gateway.member.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_refused_and_is_stored_is_cancelled() {
    let pair = Pair::start().await;
    let alone = Unsure::start(&pair, FleetMember::without_fleet());
    assert_eq!(alone.create(&pair, StoreError::Stuck, false).await.unwrap_err(), ErrorCode::Unavailable);
    let id = unfinished(&pair);
    alone.store.fails.store(false, Ordering::Release);
    assert_eq!(pair.ended(&id).await.state, BatchState::Cancelled);
    until("the batch to end", || !alone.member.runs(&id)).await;
    assert!(alone.member.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_refused_and_is_stored_is_cancelled_in_a_fleet() {
    let pair = Pair::start().await;
    let fleet = join_fleet(pair.app.stores.store.clone(), pair.folder.path(), "3");
    let third = Unsure::start(&pair, fleet);
    assert_eq!(third.create(&pair, StoreError::Stuck, false).await.unwrap_err(), ErrorCode::Unavailable);
    let id = unfinished(&pair);
    third.store.fails.store(false, Ordering::Release);
    let own = pair.members[0].context.batches.store.clone();
    let is_requested = || {
        let end = own.coordination(std::slice::from_ref(&id)).unwrap()[0].end;
        end == Some(EndRequest::Cancelled)
    };
    until("the cancellation to be requested", is_requested).await;
    assert!(third.member.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_stored_after_its_refusal_is_cancelled() {
    let pair = Pair::start().await;
    let alone = Unsure::start(&pair, FleetMember::without_fleet());
    let id = alone.create_later(&pair).await;
    until("a request behind the insert", || alone.store.queue.lock().len() > 1).await;
    alone.commit_queue(usize::MAX);
    assert_eq!(pair.ended(&id).await.state, BatchState::Cancelled);
    until("the batch to end", || !alone.member.runs(&id)).await;
    assert!(noted_ids(&pair).is_empty() && pair.calls.lock().is_empty());
    assert!(alone.member.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_stored_after_its_refusal_is_cancelled_by_the_next_process() {
    let pair = Pair::start().await;
    let alone = Unsure::start(&pair, FleetMember::without_fleet());
    let id = alone.create_later(&pair).await;
    assert!(alone.member.context.batches.close().await);
    // Commits only the insert, as if the process had ended before the cancellation that follows it in the queue.
    alone.commit_queue(1);
    let next = Member::alone(&pair.app, &pair.calls);
    next.executor.permits.add_permits(1_000);
    BatchManager::resume(&next.context).await.unwrap();
    assert_eq!(pair.ended(&id).await.state, BatchState::Cancelled);
    assert!(noted_ids(&pair).is_empty() && pair.calls.lock().is_empty());
    until("the batch to end", || !next.runs(&id)).await;
    assert!(next.context.batches.close().await);
    pair.stop().await;
}
