//! Store whose `apply` can return an error before or after it has applied a transaction, as chosen by a test.

use penstock_storage::{
    RowPage, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome,
};
use std::sync::Arc;

/// Failure of one `apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    None,
    Before,
    After,
}

/// Store with failures.
pub struct FlakyStore {
    pub store: Arc<dyn Store>,
    /// Returns the failure of the next `apply`.
    pub next_failure: Box<dyn Fn() -> Failure + Send + Sync>,
}

impl std::fmt::Debug for FlakyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for FlakyStore {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.get(space, key)
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.store.scan(space, prefix, after, limit)
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        self.store.scan_back(space, prefix, before, limit)
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        let failure = (self.next_failure)();
        if failure != Failure::Before {
            self.store.apply(batch)?;
        }
        if failure == Failure::None { Ok(()) } else { Err(StoreError::Stuck) }
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.store.copy_rows(sink)
    }

    fn verify_with_progress(&self, read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        self.store.verify_with_progress(read)
    }

    fn health(&self) -> StoreHealth {
        self.store.health()
    }
}
