//! Statement of a period, computed from its rollups; it is equal to the statement computed from its entries.

use crate::cell::{RollupDimensions, UsageOutcome};
use crate::sums::UsageSums;
use penstock_ledger::Statement;

/// Adds a rollup of an account to a statement.
pub fn add_to_statement(statement: &mut Statement, cell: &RollupDimensions, sums: &UsageSums) {
    let has_model =
        !cell.model.is_empty() && matches!(cell.outcome, UsageOutcome::Charged | UsageOutcome::Corrected);
    // The terms of a correction are those of the corrected charge, which may be from an earlier period.
    let terms = (cell.outcome == UsageOutcome::Charged).then_some(&cell.terms);
    statement.add_key_sums((&cell.account, &cell.key), has_model.then_some(&cell.model), terms, &sums.billed);
}
