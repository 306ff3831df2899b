//! Statement of a period from its rollups, equal to that of its entries.

use crate::cell::{RollupCell, UsageOutcome};
use crate::sums::UsageSums;
use penstock_ledger::Statement;

/// Adds a rollup of an account to a statement.
pub fn add_to_statement(statement: &mut Statement, cell: &RollupCell, sums: &UsageSums) {
    let has_model =
        !cell.model.is_empty() && matches!(cell.outcome, UsageOutcome::Charged | UsageOutcome::Corrected);
    // The terms of a correction are those of a charge that may be of an earlier period.
    let terms = (cell.outcome == UsageOutcome::Charged).then_some(&cell.terms);
    statement.add_sums((&cell.account, &cell.key), has_model.then_some(&cell.model), terms, &sums.billed);
}
