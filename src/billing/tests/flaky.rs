//! Store in memory with injected faults: a full disk, a hang, or a commit that is reported as failed.

use parking_lot::Mutex;
use penstock_storage::{
    RowPage, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Store in memory with injected faults.
#[derive(Debug)]
pub(super) struct Flaky {
    inner: Arc<dyn Store>,
    pub(super) full: AtomicBool,
    /// Number of the next transactions that are committed, but reported as failed.
    pub(super) lies: AtomicU32,
    /// Number of transactions that are committed and reported correctly before those of `lies`.
    pub(super) passes: AtomicU32,
    /// Number of rows that were read one by one.
    pub(super) reads: AtomicU32,
    /// Number of transactions that were started.
    pub(super) begun: AtomicU32,
    /// True while transactions block.
    pub(super) stalls: AtomicBool,
    /// Committed transactions.
    pub(super) committed: Mutex<Vec<Transaction>>,
}

impl Flaky {
    pub(super) fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            full: AtomicBool::new(false),
            lies: AtomicU32::new(0),
            passes: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            stalls: AtomicBool::new(false),
            committed: Mutex::default(),
        })
    }
}

impl Store for Flaky {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.reads.fetch_add(1, Ordering::AcqRel);
        self.inner.get(space, key)
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.inner.scan(space, prefix, after, limit)
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.inner.scan_back(space, prefix, before, limit)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        while self.stalls.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.full.load(Ordering::Acquire) {
            return Err(StoreError::Full);
        }
        self.inner.apply(batch.clone())?;
        self.committed.lock().push(batch);
        if one_less(&self.passes) || !one_less(&self.lies) { Ok(()) } else { Err(StoreError::Stuck) }
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

/// Decrements a counter; returns true if it was positive.
fn one_less(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
}
