//! Transaction of guards and writes that are applied together or not at all.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{RowAddition, StoreError, StoreTable};

/// Maximum key length, in bytes.
pub const MAX_KEY_BYTES: usize = 512;
/// Maximum value length, in bytes. It keeps the largest page of sled (17 rows) below 2 MiB; sled stores larger pages in
/// files that it never syncs.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Maximum number of operations of one transaction, guards included.
pub const MAX_OPERATIONS: usize = 5_000;
/// Maximum bytes of keys and values in one transaction.
pub const MAX_TRANSACTION_BYTES: usize = 6 * 1024 * 1024;

/// Operation on one row: a guard, which is a condition, or a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOp {
    /// Guard that the row does not exist.
    Absent,
    /// Guard that the row exists.
    Present,
    /// Guard that the row has exactly this value.
    Equals(Vec<u8>),
    /// Write that creates or replaces the row.
    Put(Vec<u8>),
    /// Write that removes the row, if it exists.
    Delete,
    /// Write that adds to a counter, see [`counter_row`]. It is also a guard: it fails if the row exists and is no
    /// counter, or if the sum exceeds the bounds or 64 bits.
    Add {
        /// Amount to add to the counter; may be negative.
        delta: i64,
        /// Minimum of the sum, if there is one.
        min: Option<i64>,
        /// Maximum of the sum, if there is one.
        max: Option<i64>,
    },
    /// Write that adds amounts to the amounts of a row. It fails if the row exists and has no amounts of this kind.
    AddAmounts(RowAddition),
}

/// Encodes a counter as a row: 8 bytes, little-endian.
#[must_use]
pub fn counter_row(count: i64) -> [u8; 8] {
    count.to_le_bytes()
}

/// Decodes a counter; a missing row is 0.
///
/// # Errors
/// Returns `Corrupt` if the row is not of 8 bytes.
pub fn parse_counter(row: Option<&[u8]>) -> Result<i64, StoreError> {
    let Some(row) = row else { return Ok(0) };
    let bytes = row.try_into().map_err(|_| StoreError::corrupt("a counter is not of 8 bytes"))?;
    Ok(i64::from_le_bytes(bytes))
}

/// Operation of a transaction with its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOperation {
    /// Table of the row.
    pub table: StoreTable,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Guard or write of the row.
    pub op: TransactionOp,
}

/// Ordered operations of a transaction: a guard sees the earlier writes of the same transaction. If one guard fails,
/// nothing is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    operations: Vec<RowOperation>,
}

impl Transaction {
    /// Creates an empty transaction.
    #[must_use]
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a guard that the row does not exist.
    #[must_use]
    pub fn require_absent(self, space: StoreTable, key: impl Into<Vec<u8>>) -> Transaction {
        self.push(space, key.into(), TransactionOp::Absent)
    }

    /// Adds a guard that the row exists.
    #[must_use]
    pub fn require_present(self, space: StoreTable, key: impl Into<Vec<u8>>) -> Transaction {
        self.push(space, key.into(), TransactionOp::Present)
    }

    /// Adds a guard that the row has exactly `value`.
    #[must_use]
    pub fn require_value(
        self,
        space: StoreTable,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Transaction {
        self.push(space, key.into(), TransactionOp::Equals(value.into()))
    }

    /// Adds a write that creates or replaces a row.
    #[must_use]
    pub fn put(self, space: StoreTable, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Transaction {
        self.push(space, key.into(), TransactionOp::Put(value.into()))
    }

    /// Adds a write that removes a row, if it exists.
    #[must_use]
    pub fn delete(self, space: StoreTable, key: impl Into<Vec<u8>>) -> Transaction {
        self.push(space, key.into(), TransactionOp::Delete)
    }

    /// Adds `delta` to a counter and requires that the sum is at least `min` and at most `max`, where given. A missing
    /// row counts as 0.
    #[must_use]
    pub fn add_to_counter(
        self,
        space: StoreTable,
        key: impl Into<Vec<u8>>,
        delta: i64,
        min: Option<i64>,
        max: Option<i64>,
    ) -> Transaction {
        self.push(space, key.into(), TransactionOp::Add { delta, min, max })
    }

    /// Adds amounts to the amounts of a row. A missing row counts as zero.
    #[must_use]
    pub fn add_amounts(
        self,
        space: StoreTable,
        key: impl Into<Vec<u8>>,
        amounts: RowAddition,
    ) -> Transaction {
        self.push(space, key.into(), TransactionOp::AddAmounts(amounts))
    }

    /// Adds all operations of another transaction.
    #[must_use]
    pub fn append_operations(mut self, other: Transaction) -> Transaction {
        self.operations.extend(other.operations);
        self
    }

    fn push(mut self, space: StoreTable, key: Vec<u8>, step: TransactionOp) -> Transaction {
        self.operations.push(RowOperation { table: space, key, op: step });
        self
    }

    /// Returns the operations of the transaction in the order in which they are applied.
    #[must_use]
    pub fn operations(&self) -> &[RowOperation] {
        &self.operations
    }

    /// Returns true if there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns the total length of all keys and values in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.operations.iter().map(RowOperation::size).sum()
    }

    /// Checks the size limits.
    ///
    /// # Errors
    /// Returns `TooLarge` with the name of the exceeded limit.
    pub fn check_limits(&self) -> Result<(), StoreError> {
        check_limit("the number of operations of a transaction", self.operations.len(), MAX_OPERATIONS)?;
        for operation in &self.operations {
            check_limit("the length of a key in bytes", operation.key.len(), MAX_KEY_BYTES)?;
            if let TransactionOp::Put(value) | TransactionOp::Equals(value) = &operation.op {
                check_limit("the length of a value in bytes", value.len(), MAX_VALUE_BYTES)?;
            }
        }
        check_limit("the size of a transaction in bytes", self.byte_len(), MAX_TRANSACTION_BYTES)
    }

    /// Checks all guards and computes all writes; `read_row` returns a row as it was before the transaction. Passes the
    /// writes to `write` only if all guards hold.
    ///
    /// # Errors
    /// Returns `Guard` with the index of the first failed guard, the error of `read_row`, or the error of a row to
    /// which amounts cannot be added, see [`RowAddition::updated_row`].
    pub(crate) fn evaluate(
        &self,
        mut read_row: impl FnMut(StoreTable, &[u8]) -> Result<Option<Vec<u8>>, StoreError>,
        mut write: impl FnMut(StoreTable, &[u8], Option<&[u8]>),
    ) -> Result<(), StoreError> {
        let mut written: Vec<(&RowOperation, Option<Cow<'_, [u8]>>)> = Vec::new();
        // Map from each row to the index of its last write in the transaction.
        let mut last: HashMap<(StoreTable, &[u8]), usize> = HashMap::new();
        for (index, operation) in self.operations.iter().enumerate() {
            let write = match &operation.op {
                TransactionOp::Put(value) => Some(Some(Cow::Borrowed(value.as_slice()))),
                TransactionOp::Delete => Some(None),
                guard => {
                    let own =
                        last.get(&(operation.table, &operation.key)).and_then(|index| written.get(*index));
                    let current = match own {
                        Some((_, value)) => value.clone(),
                        None => read_row(operation.table, &operation.key)?.map(Cow::Owned),
                    };
                    match guard {
                        TransactionOp::Add { delta, min, max } => {
                            let sum = bounded_sum(current.as_deref(), *delta, *min, *max);
                            let sum = sum.ok_or(StoreError::Guard { step: index })?;
                            Some(Some(Cow::Owned(counter_row(sum).to_vec())))
                        }
                        TransactionOp::AddAmounts(amounts) => {
                            Some(Some(Cow::Owned(amounts.updated_row(current.as_deref())?)))
                        }
                        guard if guard.is_satisfied(current.as_deref()) => None,
                        _ => return Err(StoreError::Guard { step: index }),
                    }
                }
            };
            if let Some(value) = write {
                last.insert((operation.table, &operation.key), written.len());
                written.push((operation, value));
            }
        }
        for (operation, value) in written {
            write(operation.table, &operation.key, value.as_deref());
        }
        Ok(())
    }
}

/// Returns the sum of a counter and `delta`, if the row is a counter and the sum is within the bounds.
fn bounded_sum(row: Option<&[u8]>, delta: i64, min: Option<i64>, max: Option<i64>) -> Option<i64> {
    let sum = parse_counter(row).ok()?.checked_add(delta)?;
    Some(sum).filter(|sum| min.is_none_or(|min| *sum >= min) && max.is_none_or(|max| *sum <= max))
}

impl RowOperation {
    fn size(&self) -> usize {
        let value = match &self.op {
            TransactionOp::Put(value) | TransactionOp::Equals(value) => value.len(),
            TransactionOp::Add { .. } => size_of::<i64>(),
            TransactionOp::AddAmounts(amounts) => amounts.byte_len(),
            TransactionOp::Absent | TransactionOp::Present | TransactionOp::Delete => 0,
        };
        self.key.len() + value
    }
}

impl TransactionOp {
    fn is_satisfied(&self, row: Option<&[u8]>) -> bool {
        match self {
            TransactionOp::Absent => row.is_none(),
            TransactionOp::Present => row.is_some(),
            TransactionOp::Equals(value) => row == Some(value.as_slice()),
            TransactionOp::Put(_)
            | TransactionOp::Delete
            | TransactionOp::Add { .. }
            | TransactionOp::AddAmounts(_) => true,
        }
    }
}

fn check_limit(object: &'static str, bytes: usize, cap: usize) -> Result<(), StoreError> {
    if bytes > cap { Err(StoreError::TooLarge { what: object, bytes, cap }) } else { Ok(()) }
}
