//! Commits with conditions. Outcomes with conditions are committed as a group of their own, so that a condition that
//! is not met affects no other charge.

use super::super::fenced_outcomes::FencedOutcomes;
use super::super::write_op::WriteOp;
use super::LedgerWriter;

impl LedgerWriter {
    /// Adds an operation to the draft; if the operation does not fit, commits the draft first. Commits outcomes with
    /// conditions at once. Returns false if the writer ends.
    pub(super) fn add_operation_to_draft(&mut self, op: WriteOp) -> bool {
        let op = match op {
            WriteOp::Fenced(lines) => return self.write_fenced(*lines),
            op => op,
        };
        if !self.draft.can_fit(&op) && !self.commit() {
            return false;
        }
        self.draft.queued_bytes += op.estimated_bytes();
        self.add_op(op);
        true
    }

    /// Commits the draft, and then the outcomes with conditions. Returns false if a commit is impossible; the writer
    /// then ends.
    fn write_fenced(&mut self, lines: FencedOutcomes) -> bool {
        if self.draft.queued_bytes > 0 && !self.commit() {
            return false;
        }
        let FencedOutcomes { outcomes, conditions: with, charges, reply } = lines;
        let op = WriteOp::Outcomes(outcomes);
        self.draft.queued_bytes += op.estimated_bytes();
        self.add_op(op);
        self.draft.fenced = with;
        self.is_fence_lost = false;
        if !self.commit() {
            return false;
        }
        if self.is_fence_lost {
            FencedOutcomes::refund_voided_charges(charges);
        }
        reply.send(!self.is_fence_lost).ok();
        true
    }
}
