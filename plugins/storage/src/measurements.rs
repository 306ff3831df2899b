//! Measured speeds, saved periodically so that they survive a restart. No other data depends on them: the gateway
//! measures a lost or damaged row again.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

use crate::transaction::MAX_OPERATIONS;
use crate::versioned_json;
use crate::{Store, StoreError, StoreTable, Transaction};

const WHAT: &str = "a figure";

/// Measured figures in a store, such as latency statistics, by names that the caller chooses.
#[derive(Clone, Debug)]
pub struct MeasurementStore {
    store: Arc<dyn Store>,
}

impl MeasurementStore {
    /// Creates a view of the measurements in `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> MeasurementStore {
        MeasurementStore { store }
    }

    /// Writes measurements and replaces older ones of the same names, up to [`MAX_OPERATIONS`] in one commit.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn put<T: Serialize>(&self, figures: &[(String, T)]) -> Result<(), StoreError> {
        for some in figures.chunks(MAX_OPERATIONS) {
            let mut batch = Transaction::new();
            for (name, figure) in some {
                batch = batch.put(
                    StoreTable::Measurements,
                    name.as_bytes(),
                    versioned_json::encode(WHAT, figure)?,
                );
            }
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Deletes the measurements of these names.
    ///
    /// # Errors
    /// Same as [`Store::apply`].
    pub fn delete(&self, names: &[String]) -> Result<(), StoreError> {
        for some in names.chunks(MAX_OPERATIONS) {
            let batch = some.iter().fold(Transaction::new(), |batch, name| {
                batch.delete(StoreTable::Measurements, name.as_bytes())
            });
            self.store.apply(batch)?;
        }
        Ok(())
    }

    /// Passes every measurement whose name starts with `prefix` to `each`; `None` for a row that this version cannot
    /// read.
    ///
    /// # Errors
    /// Same as [`Store::scan`].
    pub fn for_each<T: DeserializeOwned>(
        &self,
        prefix: &str,
        mut each: impl FnMut(String, Option<T>),
    ) -> Result<(), StoreError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.store.scan(
                StoreTable::Measurements,
                prefix.as_bytes(),
                after.as_deref(),
                crate::MAX_PAGE_ROWS,
            )?;
            for row in &page.rows {
                let name = String::from_utf8_lossy(&row.key).into_owned();
                each(name, versioned_json::decode(WHAT, &row.value).ok());
            }
            after = page.rows.into_iter().last().map(|row| row.key);
            if !page.more {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Speed {
        seconds: f64,
    }

    fn all(figures: &MeasurementStore, prefix: &str) -> Vec<(String, Option<Speed>)> {
        let mut found = Vec::new();
        figures.for_each(prefix, |name, speed| found.push((name, speed))).unwrap();
        found
    }

    #[test]
    fn figures_are_stored_by_name_and_damaged_ones_are_reported_and_deletable() {
        let store = crate::open_in_memory();
        let figures = MeasurementStore::new(store.clone());
        let many: Vec<(String, Speed)> =
            (0..2_500).map(|at| (format!("o{at:04}"), Speed { seconds: f64::from(at) })).collect();
        figures.put(&many).unwrap();
        figures.put(&[("m1".to_owned(), Speed { seconds: 0.5 })]).unwrap();
        assert_eq!(all(&figures, "o").len(), 2_500);
        assert_eq!(all(&figures, "m"), [("m1".to_owned(), Some(Speed { seconds: 0.5 }))]);
        store
            .apply(Transaction::new().put(StoreTable::Measurements, *b"m1", *b"{\"v\":1,\"seconds\":null}"))
            .unwrap();
        store
            .apply(Transaction::new().put(StoreTable::Measurements, *b"m2", *b"{\"v\":9,\"seconds\":1}"))
            .unwrap();
        assert_eq!(all(&figures, "m"), [("m1".to_owned(), None), ("m2".to_owned(), None)]);
        let names: Vec<String> = all(&figures, "").into_iter().map(|(name, _)| name).collect();
        figures.delete(&names).unwrap();
        assert!(all(&figures, "").is_empty());
    }
}
