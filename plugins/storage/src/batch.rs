//! Transaction of guards and writes that are applied together or not at all.

use crate::{Space, StoreError};

/// Maximum key length, in bytes.
pub const MAX_KEY: usize = 512;
/// Maximum value length, in bytes. sled stores values over 128 KiB in files that it never syncs.
pub const MAX_VALUE: usize = 64 * 1024;
/// Maximum number of operations of one transaction, guards included.
pub const MAX_STEPS: usize = 1_000;
/// Maximum bytes of keys and values in one transaction.
pub const MAX_BATCH: usize = 4 * 1024 * 1024;

/// Guard or write of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Guard that the row does not exist.
    Absent,
    /// Guard that the row exists.
    Present,
    /// Guard that the row has exactly this value.
    Is(Vec<u8>),
    /// Write that creates or replaces the row.
    Put(Vec<u8>),
    /// Write that removes the row, if it exists.
    Delete,
}

/// Operation of a transaction with its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Table of the row.
    pub space: Space,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Guard or write of the row.
    pub step: Step,
}

/// Ordered operations of a transaction: a guard sees the earlier writes of the same transaction. If one guard fails,
/// nothing is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    operations: Vec<Operation>,
}

impl Batch {
    /// Creates an empty transaction.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a guard that the row does not exist.
    #[must_use]
    pub fn absent(self, space: Space, key: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Absent)
    }

    /// Adds a guard that the row exists.
    #[must_use]
    pub fn present(self, space: Space, key: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Present)
    }

    /// Adds a guard that the row has exactly `value`.
    #[must_use]
    pub fn is(self, space: Space, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Is(value.into()))
    }

    /// Adds a write.
    #[must_use]
    pub fn put(self, space: Space, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Put(value.into()))
    }

    /// Adds a removal.
    #[must_use]
    pub fn delete(self, space: Space, key: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Delete)
    }

    /// Adds all operations of another transaction.
    #[must_use]
    pub fn and(mut self, other: Batch) -> Batch {
        self.operations.extend(other.operations);
        self
    }

    fn with(mut self, space: Space, key: Vec<u8>, step: Step) -> Batch {
        self.operations.push(Operation { space, key, step });
        self
    }

    /// Returns the operations in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Returns true if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the bytes of all keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.operations.iter().map(Operation::bytes).sum()
    }

    /// Checks the size limits.
    ///
    /// # Errors
    /// Returns `TooLarge` with the name of the exceeded limit.
    pub fn check(&self) -> Result<(), StoreError> {
        within("a transaction of operations", self.operations.len(), MAX_STEPS)?;
        for operation in &self.operations {
            within("a key", operation.key.len(), MAX_KEY)?;
            if let Step::Put(value) | Step::Is(value) = &operation.step {
                within("a value", value.len(), MAX_VALUE)?;
            }
        }
        within("a transaction", self.bytes(), MAX_BATCH)
    }

    /// Evaluates the operations against `read`, which returns a row as it was before the transaction, and passes each
    /// write to `write` once all guards hold.
    ///
    /// # Errors
    /// Returns `Guard` with the index of the first failed guard, or the error of `read`.
    pub(crate) fn evaluate(
        &self,
        mut read: impl FnMut(Space, &[u8]) -> Result<Option<Vec<u8>>, StoreError>,
        mut write: impl FnMut(Space, &[u8], Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let mut written = Vec::new();
        for (index, operation) in self.operations.iter().enumerate() {
            let held = match &operation.step {
                Step::Put(value) => {
                    written.push((operation, Some(value.as_slice())));
                    continue;
                }
                Step::Delete => {
                    written.push((operation, None));
                    continue;
                }
                guard => {
                    let own = written.iter().rev().find(|(earlier, _)| earlier.same_row(operation));
                    match own {
                        Some((_, value)) => guard.holds(*value),
                        None => guard.holds(read(operation.space, &operation.key)?.as_deref()),
                    }
                }
            };
            if !held {
                return Err(StoreError::Guard { step: index });
            }
        }
        for (operation, value) in written {
            write(operation.space, &operation.key, value);
        }
        Ok(())
    }
}

impl Operation {
    fn bytes(&self) -> usize {
        let value = match &self.step {
            Step::Put(value) | Step::Is(value) => value.len(),
            Step::Absent | Step::Present | Step::Delete => 0,
        };
        self.key.len() + value
    }

    fn same_row(&self, other: &Operation) -> bool {
        self.space == other.space && self.key == other.key
    }
}

impl Step {
    fn holds(&self, row: Option<&[u8]>) -> bool {
        match self {
            Step::Absent => row.is_none(),
            Step::Present => row.is_some(),
            Step::Is(value) => row == Some(value.as_slice()),
            Step::Put(_) | Step::Delete => true,
        }
    }
}

fn within(what: &'static str, bytes: usize, cap: usize) -> Result<(), StoreError> {
    if bytes > cap { Err(StoreError::TooLarge { what, bytes, cap }) } else { Ok(()) }
}
