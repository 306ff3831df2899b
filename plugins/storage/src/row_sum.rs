//! Amounts that a transaction adds to those of a row: writers that add do not overwrite each other, whatever their order.

use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::ledger::BalanceRecord;
use crate::spend::SpendRecord;

/// Amounts to add to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowSum {
    /// Change of an account's balance. A sum beyond 64 bits stays at the limit, so that it never wraps around.
    Balance(BalanceRecord),
    /// Spending in the day and the month of its time. Amounts of a day or a month before that of the row are left out, and
    /// those of the row if it is of an earlier one.
    Spend(SpendRecord),
}

impl RowSum {
    /// Returns the new value of the row.
    ///
    /// # Errors
    /// Returns `Corrupt` or `Format` if the row does not have such amounts.
    pub(crate) fn added_to(&self, current: Option<&[u8]>) -> Result<Vec<u8>, StoreError> {
        match self {
            RowSum::Balance(change) => {
                let balance = current.map(BalanceRecord::from_row).transpose()?.unwrap_or_default();
                balance.saturating_add(*change).to_row()
            }
            RowSum::Spend(spend) => {
                let stored = current.map(SpendRecord::from_row).transpose()?.unwrap_or_default();
                stored.with(*spend).to_row()
            }
        }
    }
}
