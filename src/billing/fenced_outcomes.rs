//! Outcomes of batch lines that are recorded only while this process holds the claim of their batch. If another process
//! has taken the claim, it executes the lines again, so the charges of this process become voids.

use super::balance::AccountBalance;
use super::entry_effects::replacement_void;
use super::hold::HoldEnd;
use super::write_op::{BatchOutcomes, LedgerAction, WriteOp};
use super::{CommitTooLarge, Ledger, is_within_commit};
use penstock_ledger::Wallet;
use penstock_storage::ledger::{CounterDelta, RowFence, RowWrite};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Conditions of a ledger commit, and the counters that it changes.
#[derive(Clone, Debug, Default)]
pub struct CommitConditions {
    /// Rows that must have a given state. The commit has to change at least one of them: at a repeated attempt, the
    /// changed row shows that the counters were already added.
    pub fences: Vec<RowFence>,
    /// Changes of counters in the same commit.
    pub counters: Vec<CounterDelta>,
}

/// Result of a fenced commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FencedResult {
    /// Outcomes and rows that are durable.
    Recorded,
    /// Condition that was not met: no row was written, and the charges became voids.
    FenceLost,
    /// Commit that will never be written, because the writer of the ledger has ended.
    Ended,
}

/// Commit with conditions, whose result is awaited.
pub struct PendingFencedCommit(oneshot::Receiver<bool>);

/// Outcomes with conditions that wait in the queue.
pub(super) struct FencedOutcomes {
    pub(super) outcomes: BatchOutcomes,
    pub(super) conditions: CommitConditions,
    /// Charges that the balances in memory already include: the account, the wallet and the amount.
    pub(super) charges: Vec<(Arc<AccountBalance>, Wallet, i64)>,
    pub(super) reply: oneshot::Sender<bool>,
}

impl FencedOutcomes {
    /// Adds voided charges back to their balances.
    pub(super) fn refund_voided_charges(charges: Vec<(Arc<AccountBalance>, Wallet, i64)>) {
        for (balance, wallet, amount) in charges {
            balance.release_and_charge(wallet, 0, amount.saturating_neg());
        }
    }

    /// Adds the charges back to their balances, tells the waiting caller that its conditions were not met, and returns
    /// the actions that end the reservations without charges.
    pub(super) fn into_voids(self) -> Vec<LedgerAction> {
        let Self { outcomes, charges, reply, .. } = self;
        Self::refund_voided_charges(charges);
        reply.send(false).ok();
        let voided = |action: LedgerAction| {
            let act = replacement_void(&action.act, "claim_lost").unwrap_or(action.act);
            LedgerAction { act, terms: None, ..action }
        };
        outcomes.actions.into_iter().map(voided).collect()
    }
}

impl Ledger {
    /// Queues ends of reservations and additional rows for a commit of their own. This commit is made only if the rows
    /// that `with` names are in their required states. Otherwise no row is written, no counter is changed, and each
    /// charge becomes a void. Returns the pending commit for [`Ledger::wait_fenced_commit`].
    ///
    /// # Errors
    /// Returns [`CommitTooLarge`] with the ends and the rows if they exceed one of the limits of
    /// [`Ledger::record_outcomes`]; nothing is queued then.
    pub fn record_fenced_outcomes(
        &self,
        ends: Vec<HoldEnd>,
        rows: Vec<RowWrite>,
        with: CommitConditions,
    ) -> Result<PendingFencedCommit, CommitTooLarge> {
        if !is_within_commit(&ends, &rows) {
            return Err(CommitTooLarge(ends, rows));
        }
        let charges = ends.iter().filter_map(HoldEnd::charge).collect();
        let actions = ends.into_iter().map(HoldEnd::into_action).collect();
        let (reply, answered) = oneshot::channel();
        let outcomes = BatchOutcomes { actions, rows };
        self.queue.push(WriteOp::Fenced(Box::new(FencedOutcomes {
            outcomes,
            conditions: with,
            charges,
            reply,
        })));
        Ok(PendingFencedCommit(answered))
    }

    /// Waits for the result of a fenced commit, however long the store takes. The writer collects operations for a
    /// shorter time meanwhile.
    pub async fn wait_fenced_commit(&self, pending: PendingFencedCommit) -> FencedResult {
        self.queue.shorten_collect_time();
        match pending.0.await {
            Ok(true) => FencedResult::Recorded,
            Ok(false) => FencedResult::FenceLost,
            Err(_) => FencedResult::Ended,
        }
    }
}
