//! Operations that are sent to the ledger's writer thread.

use super::balance::AccountBalance;
use super::fenced_outcomes::FencedOutcomes;
use penstock_ledger::EntryKind;
use penstock_storage::audit::ChangeDescription;
use penstock_storage::ledger::RowWrite;
use std::sync::{Arc, mpsc};

/// Maximum bytes of an entry of the audit log and of its head, without the names and the change.
const AUDIT_OVERHEAD: usize = 1_024;

/// Pricing terms that charges refer to.
#[derive(Debug)]
pub struct SaleTerms {
    /// ID: the first sixteen hexadecimal digits of the text's SHA-256.
    pub id: Arc<str>,
    /// Pricing terms as the text of a JSON object.
    pub text: Arc<str>,
}

/// Error of a grant or a correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustmentError {
    /// The store rejects writes at the moment.
    StoreFailing,
    /// The ID was already used, or the entry was already corrected, by the entry with this number.
    Duplicate(u64),
    /// The amount is invalid.
    InvalidAmount,
    /// Unknown outcome, since the store failed meanwhile. A retry with the same ID is safe.
    OutcomeUnknown,
}

/// Operation for the ledger's writer thread.
pub(super) enum WriteOp {
    /// Ledger action of one request, such as a reservation or a charge.
    Action(LedgerAction),
    /// Ends of several requests and their rows: written in one commit, or not at all. Rows that the store permanently
    /// rejects are dropped, and the ends are written without them.
    Outcomes(BatchOutcomes),
    /// Ends of several requests and their rows, on conditions, in a separate commit. If a condition is not met, the
    /// charges are written as voids, and the rows are not written.
    Fenced(Box<FencedOutcomes>),
    /// Adjustment by an operator.
    Adjustment(Box<AdminAdjustment>),
}

/// Ledger action with its account and time.
pub(super) struct LedgerAction {
    pub(super) at: u64,
    pub(super) account: Arc<str>,
    pub(super) act: EntryKind,
    pub(super) terms: Option<Arc<SaleTerms>>,
    /// Amount in 1e-8 EUR that is no longer exposed once the action is written.
    pub(super) exposed_eur: i64,
    /// Number in the journal; 0 without a journal.
    pub(super) number: u64,
}

/// Ends of batch lines, and the rows that are written with them.
pub(super) struct BatchOutcomes {
    pub(super) actions: Vec<LedgerAction>,
    pub(super) rows: Vec<RowWrite>,
}

impl BatchOutcomes {
    fn bytes(&self) -> u64 {
        let rows: usize = self.rows.iter().map(RowWrite::byte_len).sum();
        self.actions.iter().map(LedgerAction::estimated_bytes).sum::<u64>() + rows as u64
    }
}

/// Grant or correction, and the channel for its result.
pub(super) struct AdminAdjustment {
    pub(super) balance: Arc<AccountBalance>,
    pub(super) at: u64,
    pub(super) act: EntryKind,
    /// Names that the entry uses; if another entry has used one of them, the adjustment is refused.
    pub(super) names: Vec<String>,
    /// Audit-log entry without the number of the ledger entry; `None` if the adjustment is not audited.
    pub(super) audit: Option<ChangeDescription>,
    pub(super) reply: mpsc::Sender<Result<u64, AdjustmentError>>,
}

impl AdminAdjustment {
    /// Returns the audit-log entry of the adjustment, with the number of its ledger entry; `None` if the adjustment is
    /// not audited.
    pub(super) fn audit_entry(&self, entry_number: u64) -> Option<ChangeDescription> {
        let mut audit = self.audit.clone()?;
        if let Some(members) = audit.change.as_object_mut() {
            members.insert("entry".to_owned(), entry_number.into());
        }
        Some(audit)
    }

    /// Returns the maximum size of the audit log rows, in bytes.
    pub(super) fn max_audit_bytes(&self) -> usize {
        self.audit.as_ref().map_or(0, |audit| {
            AUDIT_OVERHEAD + audit.who.len() + audit.target.len() + audit.change.to_string().len()
        })
    }
}

impl WriteOp {
    /// Returns the approximate size on the disk and in memory, in bytes.
    pub(super) fn estimated_bytes(&self) -> u64 {
        match self {
            Self::Action(action) => action.estimated_bytes(),
            Self::Outcomes(lines) => lines.bytes(),
            Self::Fenced(lines) => lines.outcomes.bytes(),
            Self::Adjustment(_) => 1_024,
        }
    }
}

impl LedgerAction {
    /// Returns the approximate size by the kind of the entry, in bytes.
    pub(super) const fn estimated_bytes(&self) -> u64 {
        match self.act {
            EntryKind::Settle { .. } => 800,
            _ => 320,
        }
    }
}
