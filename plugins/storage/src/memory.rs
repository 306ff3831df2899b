//! In-memory engine with the guarantees of the durable engine except durability, for tests and benchmarks.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::store::{PageBuilder, prefix_end};
use crate::{RowPage, SnapshotRow, Store, StoreError, StoreHealth, StoreTable, Transaction, VerifyOutcome};

type RowMap = BTreeMap<(StoreTable, Vec<u8>), Vec<u8>>;

/// Creates a store in memory; its rows are lost when the store is dropped.
#[must_use]
pub fn open_in_memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore { rows: RwLock::new(BTreeMap::new()) })
}

struct MemoryStore {
    rows: RwLock<RowMap>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("rows", &self.rows.read().len()).finish()
    }
}

impl Store for MemoryStore {
    fn get(&self, space: StoreTable, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.read().get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: StoreTable,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let rows = self.rows.read();
        let mut page = PageBuilder::new(limit);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded((space, after.to_vec())),
            _ => Bound::Included((space, prefix.to_vec())),
        };
        for ((at, key), value) in rows.range((start, Bound::Unbounded)) {
            if *at != space || !key.starts_with(prefix) || !page.has_capacity() {
                break;
            }
            page.push(key, value);
        }
        Ok(page.finish())
    }

    fn scan_back(
        &self,
        space: StoreTable,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<RowPage, StoreError> {
        let rows = self.rows.read();
        let mut page = PageBuilder::new(limit);
        let past = prefix_end(prefix);
        let end = match (before, past.as_deref()) {
            (Some(before), Some(past)) => Some(before.min(past)),
            (one, other) => one.or(other),
        };
        let start = (space, prefix.to_vec());
        let mine = rows.range(start..).take_while(|((at, key), _)| {
            *at == space && key.starts_with(prefix) && end.is_none_or(|end| key.as_slice() < end)
        });
        let mine: Vec<_> = mine.collect();
        for ((_, key), value) in mine.into_iter().rev() {
            if !page.has_capacity() {
                break;
            }
            page.push(key, value);
        }
        Ok(page.finish())
    }

    fn apply(&self, batch: Transaction) -> Result<(), StoreError> {
        batch.check_limits()?;
        let mut rows = self.rows.write();
        let mut writes = Vec::new();
        batch.evaluate(
            |space, key| Ok(rows.get(&(space, key.to_vec())).cloned()),
            |space, key, value| writes.push(((space, key.to_vec()), value.map(<[u8]>::to_vec))),
        )?;
        for (key, value) in writes {
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        Ok(())
    }

    fn copy_rows(
        &self,
        sink: &mut dyn FnMut(SnapshotRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // The map is cloned so that a slow sink does not block writers.
        let rows = self.rows.read().clone();
        rows.iter().try_for_each(|((space, key), value)| {
            sink(SnapshotRow { table: *space, key, value: Some(value) })
        })
    }

    fn verify_with_progress(&self, on_rows_read: &mut dyn FnMut(u64)) -> Result<VerifyOutcome, StoreError> {
        let rows = self.rows.read();
        let bytes = rows.iter().map(|((_, key), value)| (key.len() + value.len()) as u64).sum();
        on_rows_read(rows.len() as u64);
        Ok(VerifyOutcome { rows: rows.len() as u64, bytes, ..VerifyOutcome::default() })
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::Ready
    }
}
