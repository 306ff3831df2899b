//! Draws of members that change a pool at the same time.

use super::*;
use penstock_storage::{RowPage, SnapshotRow, StoreHealth, StoreTable, Transaction, VerifyOutcome};
use std::sync::atomic::AtomicU32;

/// Attempts of one draw.
const ATTEMPTS: u32 = 32;

/// Store in which the next transactions fail, as if other members had changed their rows first.
#[derive(Debug)]
struct ContendedStore {
    store: Arc<dyn Store>,
    /// Number of transactions that fail.
    lost: AtomicU32,
}

impl Store for ContendedStore {
    fn get(&self, table: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(table, key)
    }

    fn scan(
        &self,
        table: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.store.scan(table, prefix, after, limit)
    }

    fn scan_back(
        &self,
        table: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.store.scan_back(table, prefix, before, limit)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        let is_lost = self.lost.fetch_update(Ordering::AcqRel, Ordering::Acquire, |lost| lost.checked_sub(1));
        if is_lost.is_ok() { Err(StoreError::Guard { step: 2 }) } else { self.store.apply(batch) }
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.copy_rows(sink)
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        self.store.verify_with_progress(on_rows_read)
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Ready
    }
}

#[tokio::test]
async fn a_draw_that_loses_to_others_is_tried_again_and_leaves_no_doubt() {
    let mut database = Database::new(limits(10_000));
    let store = Arc::new(ContendedStore { store: database.store.clone(), lost: AtomicU32::new(0) });
    database.store = store.clone();
    let gateway = database.open("1");
    let leases = gateway.ledger.leases().unwrap();
    let is_uncertain = || leases.pools.lock().values().any(|state| state.uncertain);
    store.lost.store(ATTEMPTS, Ordering::Release);
    assert!(gateway.serve(10, 10).await);
    assert_eq!((gateway.total_request_draws(), is_uncertain()), (2, false));
    // The recalled lease of the lowered budget goes back to the pool with the draw that succeeds.
    database.change(&[&gateway], &limits(5_000));
    store.lost.store(ATTEMPTS, Ordering::Release);
    assert!(gateway.serve(10, 10).await);
    assert_eq!((gateway.total_request_draws(), is_uncertain()), (4, false));
    assert_eq!(database.leased(), gateway.available() + 20, "20 are not written yet");
    // A heartbeat continues with its other draws after a draw that fails.
    let needed =
        LeasedBudget::uncovered_budgets(&gateway.principal, u64::MAX).into_iter().map(LeasedBalance::Budget);
    let draw = |balance| PendingRefill { balance, amount: 50, skipped: 0 };
    let draws = needed.clone().chain(needed).map(draw).collect();
    let before = gateway.available();
    store.lost.store(ATTEMPTS, Ordering::Release);
    leases.refill(draws, || true);
    assert_eq!((gateway.available(), is_uncertain()), (before + 50, false));
}
