//! In-memory engine with the guarantees of the durable one except durability. For tests, and for a gateway configured
//! without a data directory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::store::{PageBuilder, past};
use crate::{Batch, Copied, Health, Page, Space, Store, StoreError, Verified};

type Rows = BTreeMap<(Space, Vec<u8>), Vec<u8>>;

/// Creates a store that lives as long as the process.
#[must_use]
pub fn memory() -> Arc<dyn Store> {
    Arc::new(Memory { rows: RwLock::new(BTreeMap::new()) })
}

struct Memory {
    rows: RwLock<Rows>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("rows", &self.rows.read().len()).finish()
    }
}

impl Store for Memory {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.rows.read().get(&(space, key.to_vec())).cloned())
    }

    fn scan(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let rows = self.rows.read();
        let mut page = PageBuilder::new(limit);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded((space, after.to_vec())),
            _ => Bound::Included((space, prefix.to_vec())),
        };
        for ((at, key), value) in rows.range((start, Bound::Unbounded)) {
            if *at != space || !key.starts_with(prefix) || !page.has_room() {
                break;
            }
            page.push(key, value);
        }
        Ok(page.finish())
    }

    fn scan_back(
        &self,
        space: Space,
        prefix: &[u8],
        before: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let rows = self.rows.read();
        let mut page = PageBuilder::new(limit);
        let past = past(prefix);
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
            if !page.has_room() {
                break;
            }
            page.push(key, value);
        }
        Ok(page.finish())
    }

    fn apply(&self, batch: Batch) -> Result<(), StoreError> {
        batch.check()?;
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

    fn copy(&self, sink: &mut dyn FnMut(Copied<'_>) -> Result<(), StoreError>) -> Result<(), StoreError> {
        // The map is cloned so that a slow sink does not block writers.
        let rows = self.rows.read().clone();
        rows.iter()
            .try_for_each(|((space, key), value)| sink(Copied { space: *space, key, value: Some(value) }))
    }

    fn verify_with(&self, read: &mut dyn FnMut(u64)) -> Result<Verified, StoreError> {
        let rows = self.rows.read();
        let bytes = rows.iter().map(|((_, key), value)| (key.len() + value.len()) as u64).sum();
        read(rows.len() as u64);
        Ok(Verified { rows: rows.len() as u64, bytes, ..Verified::default() })
    }

    fn health(&self) -> Health {
        Health::Ready
    }
}
