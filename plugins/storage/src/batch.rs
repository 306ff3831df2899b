//! A batch: guards and writes that happen all together or not at all.

use crate::{Space, StoreError};

/// Longest key, in bytes.
pub const MAX_KEY: usize = 512;
/// Longest value, in bytes. (sled keeps values over 128 KiB in files it never syncs.)
pub const MAX_VALUE: usize = 64 * 1024;
/// Most steps of one batch, guards included.
pub const MAX_STEPS: usize = 1_000;
/// Most bytes of keys and values in one batch.
pub const MAX_BATCH: usize = 4 * 1024 * 1024;

/// One step of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Holds if there is no such row.
    Absent,
    /// Holds if there is such a row.
    Present,
    /// Holds if the row is exactly these bytes.
    Is(Vec<u8>),
    /// Writes the row, over an old one if there is one.
    Put(Vec<u8>),
    /// Removes the row, if there is one.
    Delete,
}

/// A step and the row it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The row's space.
    pub space: Space,
    /// The row's key.
    pub key: Vec<u8>,
    /// What is asked of the row.
    pub step: Step,
}

/// Steps taken in order: a guard sees the writes before it in the same batch. If one guard does not hold,
/// nothing of the batch is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    operations: Vec<Operation>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a guard: the row must not be there.
    #[must_use]
    pub fn absent(self, space: Space, key: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Absent)
    }

    /// Adds a guard: the row must be there.
    #[must_use]
    pub fn present(self, space: Space, key: impl Into<Vec<u8>>) -> Batch {
        self.with(space, key.into(), Step::Present)
    }

    /// Adds a guard: the row must be exactly `value`.
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

    /// Adds all steps of another batch.
    #[must_use]
    pub fn and(mut self, other: Batch) -> Batch {
        self.operations.extend(other.operations);
        self
    }

    fn with(mut self, space: Space, key: Vec<u8>, step: Step) -> Batch {
        self.operations.push(Operation { space, key, step });
        self
    }

    /// The steps, in order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether there is no step at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.operations.iter().map(Operation::bytes).sum()
    }

    /// Checks the caps.
    ///
    /// # Errors
    /// `TooLarge` naming what is over its cap.
    pub fn check(&self) -> Result<(), StoreError> {
        within("a batch of steps", self.operations.len(), MAX_STEPS)?;
        for operation in &self.operations {
            within("a key", operation.key.len(), MAX_KEY)?;
            if let Step::Put(value) | Step::Is(value) = &operation.step {
                within("a value", value.len(), MAX_VALUE)?;
            }
        }
        within("a batch", self.bytes(), MAX_BATCH)
    }

    /// Takes the steps over `read`, which gives a row as it stands before the batch, and hands each write
    /// to `write` once every guard is known to hold.
    ///
    /// # Errors
    /// `Guard` with the first step that does not hold, or whatever `read` fails with.
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
