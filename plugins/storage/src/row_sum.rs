//! Amounts that a transaction adds to the amounts in a row. Additions of several writers never overwrite each other,
//! in whatever order their transactions are applied.

use serde::{Deserialize, Serialize};

use penstock_core::usage_row::add_usage_rows;

use crate::ledger::BalanceRecord;
use crate::spend::SpendRecord;
use crate::{StoreError, counter_row, parse_counter};

/// Maximum bytes of a row with amounts.
const MAX_AMOUNT_BYTES: usize = 96;

/// Amounts to add to a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowAddition {
    /// Change of an account's balance. A sum beyond 64 bits saturates at the limit.
    Balance(BalanceRecord),
    /// Spending in the day and the month of its time. If the row is of a later day (or month), the added amount of
    /// the day (or month) is dropped. If the row is of an earlier one, the amount in the row is dropped.
    Spend(SpendRecord),
    /// Change of a usage rollup, encoded as a [`penstock_core::usage_row::UsageRow`].
    Usage(Vec<u8>),
    /// Change of a counter, see [`counter_row`]. A sum beyond 64 bits saturates at the limit, so the addition never
    /// fails.
    Counter(i64),
}

impl RowAddition {
    /// Returns the size of the addition in bytes, or an upper bound of it, for the limits of a transaction.
    pub(crate) fn byte_len(&self) -> usize {
        match self {
            RowAddition::Balance(_) | RowAddition::Spend(_) => MAX_AMOUNT_BYTES,
            RowAddition::Usage(change) => change.len(),
            RowAddition::Counter(_) => size_of::<i64>(),
        }
    }

    /// Returns the new value of a row whose value is `current`; `None` for a row that does not exist.
    ///
    /// # Errors
    /// Returns `Corrupt` or `Format` if the row has no amounts of this kind.
    pub(crate) fn updated_row(&self, current: Option<&[u8]>) -> Result<Vec<u8>, StoreError> {
        match self {
            RowAddition::Balance(change) => {
                let balance = current.map(BalanceRecord::from_row).transpose()?.unwrap_or_default();
                balance.saturating_add(*change).to_row()
            }
            RowAddition::Spend(spend) => {
                let stored = current.map(SpendRecord::from_row).transpose()?.unwrap_or_default();
                stored.merged_with(*spend).to_row()
            }
            // Every failure is reported as an unknown format: whatever the failure, the remedy is to rebuild the
            // rollups.
            RowAddition::Usage(change) => add_usage_rows(current, change)
                .map_err(|_| StoreError::corrupt("a usage rollup is in an unknown format")),
            RowAddition::Counter(change) => {
                Ok(counter_row(parse_counter(current)?.saturating_add(*change)).to_vec())
            }
        }
    }
}
