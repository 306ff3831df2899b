//! Claim of a running batch: each commit requires the claim. Also handles the loss and the release of the claim.

use super::claims::{HeldClaim, TakeoverKind};
use super::commit::BatchCommitOutcome;
use super::context::BatchContext;
use super::runner::{BatchEvent, BatchRunner};
use super::runner_state::{PendingResults, RunnerPhase};
use crate::billing::{CommitConditions, CommitTooLarge, FencedResult, HoldEnd, Ledger, PendingFencedCommit};
use penstock_storage::batches::BatchRecord;
use penstock_storage::ledger::{CounterDelta, RowWrite};
use std::sync::Arc;

/// Ends of reserves, rows and counter changes of one commit.
pub(super) type CommitContents = (Vec<HoldEnd>, Vec<RowWrite>, Vec<CounterDelta>);

/// Records outcomes and rows of a batch in the ledger; in a fleet only if this process still holds the claim of the
/// batch. Returns the claim as it is after the commit, and a future of the outcome of the commit.
///
/// # Errors
/// Returns the data if it exceeds one commit.
pub(super) fn commit_outcomes(
    context: &Arc<BatchContext>,
    record: &BatchRecord,
    held: Option<HeldClaim>,
    (ends, mut rows, counters): CommitContents,
) -> Result<(Option<HeldClaim>, impl Future<Output = BatchCommitOutcome> + Send + use<>), CommitTooLarge> {
    let ledger = context.ledger.clone();
    let Some(HeldClaim { claim, .. }) = held else {
        let ticket = ledger.record_outcomes(ends, rows)?;
        return Ok((None, wait_for_commit(ledger, PendingCommit::Plain(ticket))));
    };
    let next = claim.after_commit();
    // The last commit removes the claim.
    if !record.state.is_final() {
        rows.push(next.row_write(&record.id));
    }
    let fences = CommitConditions { fences: vec![claim.fence(&record.id)], counters };
    let pending = ledger.record_fenced_outcomes(ends, rows, fences)?;
    let held = HeldClaim { claim: next, takeover: TakeoverKind::Orderly };
    Ok((Some(held), wait_for_commit(ledger, PendingCommit::Fenced(pending))))
}

/// Commit whose end is awaited.
enum PendingCommit {
    /// Ticket of a commit without conditions.
    Plain(u64),
    /// Commit that requires the claim.
    Fenced(PendingFencedCommit),
}

async fn wait_for_commit(ledger: Arc<Ledger>, pending: PendingCommit) -> BatchCommitOutcome {
    match pending {
        PendingCommit::Plain(ticket) if ledger.wait_durable(ticket).await => BatchCommitOutcome::Durable,
        PendingCommit::Plain(_) => BatchCommitOutcome::Failed,
        PendingCommit::Fenced(pending) => match ledger.wait_fenced_commit(pending).await {
            FencedResult::Recorded => BatchCommitOutcome::Durable,
            FencedResult::FenceLost => BatchCommitOutcome::ClaimLost,
            FencedResult::Ended => BatchCommitOutcome::Failed,
        },
    }
}

impl BatchRunner {
    /// Records outcomes and rows like the function [`commit_outcomes`]. Sends the end of the commit as an event.
    ///
    /// # Errors
    /// Returns the data if it exceeds one commit.
    pub(super) fn commit_outcomes(
        &mut self,
        ends: Vec<HoldEnd>,
        rows: Vec<RowWrite>,
        counters: Vec<CounterDelta>,
    ) -> Result<(), CommitTooLarge> {
        let (claim, committed) =
            commit_outcomes(&self.app, &self.record, self.claim, (ends, rows, counters))?;
        self.claim = claim;
        let events = self.events.clone();
        tokio::spawn(async move {
            events.send(BatchEvent::Committed(committed.await)).ok();
        });
        Ok(())
    }

    /// Returns true if the former holder of the batch may still write to its output file.
    pub(super) fn may_have_stale_writer(&self) -> bool {
        self.claim.is_some_and(|held| held.takeover == TakeoverKind::Forced)
    }

    /// Stops at once, because another gateway runs the batch. Results that are not committed are dropped, which voids
    /// their charges.
    pub(super) fn on_claim_lost(&mut self) {
        if self.shutdown.is_finished() {
            return;
        }
        tracing::warn!(name: "batch_claim_lost", batch = self.record.id);
        self.in_flight.interrupted.cancel();
        self.in_flight.cancel.cancel();
        self.in_flight.abort.send_replace(true);
        self.pending = PendingResults::default();
        self.claim = None;
        self.shutdown.phase = RunnerPhase::Finished;
    }

    /// Releases the claim of a batch that stops before its end, so that another gateway continues it at once.
    pub(super) async fn release_claim(&self) {
        let Some(HeldClaim { claim, .. }) = self.claim else { return };
        // The claim is not released after a failed commit, whose outcome is unknown, nor while a write is in progress.
        if !self.lifecycle.state.is_final() && !self.disk.writing && !self.shutdown.is_finished() {
            self.app.batches.release_claim(&self.record.id, claim).await;
        }
    }
}
