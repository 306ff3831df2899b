//! Inserts of batches whose answer of the store is lost.

use super::*;
use penstock_storage::{
    RowPage, SnapshotRow, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome,
};

/// Store that commits a transaction and loses its answer.
#[derive(Debug)]
struct LostAnswers {
    inner: Arc<dyn Store>,
    /// True if the answer of the next transaction is lost.
    loses_next: AtomicBool,
    /// True if reads fail after the lost answer.
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
        self.inner.apply(batch)?;
        if !self.loses_next.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.fails.store(self.then_fails.load(Ordering::Acquire), Ordering::Release);
        Err(StoreError::Stuck)
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.inner.copy_rows(sink)
    }

    fn verify_with_progress(&self, read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        self.inner.verify_with_progress(read)
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
            loses_next: AtomicBool::new(false),
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

    /// Creates a batch whose insert loses its answer; the record can be read then if `is_readable`.
    async fn create(&self, pair: &Pair, is_readable: bool) -> Result<Arc<BatchRecord>, ErrorCode> {
        let request = CreateBatchRequest {
            input_file_id: pair.upload(0, 3).unwrap(),
            endpoint: "/v1/rerank",
            completion_window: "24h".to_owned(),
            window_seconds: 86_400,
            metadata: Vec::new(),
        };
        self.store.then_fails.store(!is_readable, Ordering::Release);
        self.store.loses_next.store(true, Ordering::Release);
        let created = BatchManager::create(&self.member.context, &pair.principal, request).await;
        created.map_err(|refusal| refusal.code)
    }
}

/// Returns the id of the only batch that has not ended.
fn unfinished(pair: &Pair) -> String {
    let open = pair.members[0].context.batches.store.list_unfinished().unwrap();
    assert_eq!(open.len(), 1);
    open[0].id.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_stored_without_an_answer_is_created() {
    let pair = Pair::start().await;
    let gateway = Unsure::start(&pair, FleetMember::without_fleet());
    let record = gateway.create(&pair, true).await.unwrap();
    assert_eq!(pair.ended(&record.id).await.state, BatchState::Completed);
    assert!(gateway.member.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_refused_and_is_stored_is_cancelled() {
    let pair = Pair::start().await;
    let alone = Unsure::start(&pair, FleetMember::without_fleet());
    assert_eq!(alone.create(&pair, false).await.unwrap_err(), ErrorCode::Unavailable);
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
    assert_eq!(third.create(&pair, false).await.unwrap_err(), ErrorCode::Unavailable);
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
