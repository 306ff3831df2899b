//! Rollups of the current hour, in the memory of the ledger's writer.

use penstock_ledger::LedgerEntry;
use penstock_storage::StoreError;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    ChargeDimensions, HourNumber, RollupDimensions, UsageSums, data_center_location, entry_rollup,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Key and value of a row.
type KeyedRow = (Vec<u8>, Vec<u8>);

/// Changes of rollups for a process that is not the only writer.
pub struct RollupChanges {
    /// Rows that the commit writes in place of unreadable rows of the store. Their values are the sums of this commit
    /// only.
    pub replacements: Vec<KeyedRow>,
    /// Rows with the changes that are added to their values.
    pub added: Vec<KeyedRow>,
}

/// Maximum number of rollups that stay in memory after a commit.
const MAX_CELLS: usize = 4_096;

/// Rollups that the entries of the current commit change, and those that recent commits changed.
#[derive(Default)]
pub struct RollupCache {
    cells: HashMap<RollupDimensions, CachedCell, ahash::RandomState>,
    /// Dimensions of the rollups that the current commit changes.
    changed: Vec<RollupDimensions>,
    /// Locations of pricing terms by their id.
    locations: HashMap<Arc<str>, Arc<str>, ahash::RandomState>,
    /// Hour of the last ledger entry that was added.
    hour: HourNumber,
    /// True if a row in the store was unreadable: its sums are lost until the rollups are rebuilt.
    is_damaged: bool,
}

#[derive(Default)]
struct CachedCell {
    key: Vec<u8>,
    /// Sums in the store; `None` until they are read. If other processes write too, only the fact that they are
    /// readable is used.
    stored: Option<UsageSums>,
    /// Sums of the current commit; `None` if it does not change the cell.
    added: Option<UsageSums>,
}

impl RollupCache {
    /// Stores the location of pricing terms.
    pub fn cache_terms_location(&mut self, id: &Arc<str>, text: &str) {
        if !self.locations.contains_key(id) {
            self.locations.insert(id.clone(), data_center_location(text));
        }
    }

    /// Adds an entry to the two rollups that include it: that of its account and that of the whole gateway. `corrected`
    /// is the work of the charge that a correction corrects; `None` for other entries.
    pub fn add_entry(&mut self, entry: &LedgerEntry, corrected: Option<&ChargeDimensions>) {
        let locations = &self.locations;
        let location = |terms: &Arc<str>| locations.get(terms).cloned().unwrap_or_else(|| Arc::from(""));
        let Some((cell, sums)) = entry_rollup(entry, corrected, location) else { return };
        self.hour = cell.hour;
        self.add_sums(cell.to_gateway_wide(), &sums);
        self.add_sums(cell, &sums);
    }

    fn add_sums(&mut self, cell: RollupDimensions, sums: &UsageSums) {
        if let Some(cached) = self.cells.get_mut(&cell) {
            if cached.added.is_none() {
                self.changed.push(cell);
            }
            cached.added.get_or_insert_default().add(sums);
            return;
        }
        let key = penstock_usage::row_key(&cell);
        self.changed.push(cell.clone());
        self.cells.insert(cell, CachedCell { key, stored: None, added: Some(sums.clone()) });
    }

    /// Returns the number of rows that the current commit changes.
    pub const fn changed_row_count(&self) -> usize {
        self.changed.len()
    }

    /// Returns true if a row in the store was unreadable.
    pub const fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns the changed rows with their new values. Another call for the same commit returns the same bytes. An
    /// unreadable row counts as empty, since a damaged sum must not keep charges from being written.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read; then nothing of the commit was written.
    pub fn changed_row_values(&mut self, store: &LedgerStore) -> Result<Vec<KeyedRow>, StoreError> {
        let mut rows = Vec::with_capacity(self.changed.len());
        for cell in &self.changed {
            let Some(cached) = self.cells.get_mut(cell) else { continue };
            if cached.stored.is_none() {
                let stored = cached.read_stored(store)?;
                self.is_damaged |= stored.is_none();
                cached.stored = Some(stored.unwrap_or_default());
            }
            let mut sums = cached.stored.clone().unwrap_or_default();
            if let Some(added) = &cached.added {
                sums.add(added);
            }
            rows.push((cached.key.clone(), penstock_usage::encode_row_value(cell, &sums)));
        }
        Ok(rows)
    }

    /// Returns the changes of the changed rows. The store adds them to its values, so that other processes can write
    /// too. A row that is unreadable at its first change is replaced.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read; then nothing of the commit was written.
    pub fn changes(&mut self, store: &LedgerStore) -> Result<RollupChanges, StoreError> {
        let mut changes =
            RollupChanges { replacements: Vec::new(), added: Vec::with_capacity(self.changed.len()) };
        for cell in &self.changed {
            let Some(cached) = self.cells.get_mut(cell) else { continue };
            let Some(added) = &cached.added else { continue };
            let row = (cached.key.clone(), penstock_usage::encode_row_value(cell, added));
            if cached.stored.is_none() {
                cached.stored = cached.read_stored(store)?;
            }
            if cached.stored.is_some() {
                changes.added.push(row);
            } else {
                self.is_damaged = true;
                changes.replacements.push(row);
            }
        }
        Ok(changes)
    }

    /// Drops the cached values of the rows that the commit changes, so that the next attempt reads them from the store
    /// again.
    pub fn forget_cached_values(&mut self) {
        for cell in &self.changed {
            if let Some(cached) = self.cells.get_mut(cell) {
                cached.stored = None;
            }
        }
    }

    /// Discards the changes of the current commit.
    pub fn discard_changes(&mut self) {
        for cell in self.changed.drain(..) {
            if let Some(cached) = self.cells.get_mut(&cell) {
                cached.added = None;
            }
        }
    }

    /// Records that the changed rollups are in the store. Removes rollups of other hours from memory, or all rollups
    /// if there are more than `MAX_CELLS`.
    pub fn mark_written(&mut self) {
        for cell in self.changed.drain(..) {
            let Some(cached) = self.cells.get_mut(&cell) else { continue };
            if let (Some(stored), Some(added)) = (&mut cached.stored, cached.added.take()) {
                stored.add(&added);
            }
        }
        let hour = self.hour;
        if self.cells.len() > MAX_CELLS {
            self.cells.clear();
        } else if self.cells.keys().any(|cell| cell.hour != hour) {
            self.cells.retain(|cell, _| cell.hour == hour);
        }
    }
}

impl CachedCell {
    /// Reads the sums in the store; `None` if they are unreadable.
    fn read_stored(&self, store: &LedgerStore) -> Result<Option<UsageSums>, StoreError> {
        match store.rollup(&self.key) {
            Ok(None) => Ok(Some(UsageSums::default())),
            Ok(Some(value)) => Ok(penstock_usage::decode_row(&self.key, &value).ok().map(|(_, sums)| sums)),
            Err(StoreError::Corrupt { .. } | StoreError::Format { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
