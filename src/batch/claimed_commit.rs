//! Claim of a running batch: the condition of its commits, its loss and its release.

use super::claims::{HeldClaim, Takeover};
use super::commit::CommitEnd;
use super::runner::{BatchEvent, BatchRunner};
use super::runner_state::{PendingResults, RunnerPhase};
use crate::billing::{CommitFences, CommitTooLarge, FencedResult, HoldEnd};
use crate::telemetry::log;
use penstock_storage::ledger::{CounterChange, RowWrite};

impl BatchRunner {
    /// Records outcomes and rows with the ledger, in a fleet only if the batch is still claimed by this process. Sends the
    /// end of the commit as an event.
    ///
    /// # Errors
    /// Returns the data if it exceeds one commit.
    pub(super) fn record(
        &mut self,
        ends: Vec<HoldEnd>,
        mut rows: Vec<RowWrite>,
        counters: Vec<CounterChange>,
    ) -> Result<(), CommitTooLarge> {
        let (context, events) = (self.app.clone(), self.events.clone());
        let Some(HeldClaim { claim, .. }) = self.claim else {
            let ticket = self.app.ledger.record_outcomes(ends, rows)?;
            tokio::spawn(async move {
                let is_durable = context.ledger.wait_durable(ticket).await;
                drop(context);
                let end = if is_durable { CommitEnd::Durable } else { CommitEnd::Failed };
                events.send(BatchEvent::Committed(end)).ok();
            });
            return Ok(());
        };
        let id = &self.record.id;
        let next = claim.after_commit();
        // The last commit removes the claim.
        if !self.record.state.is_final() {
            rows.push(next.row_write(id));
        }
        let pending = self.app.ledger.record_fenced(
            ends,
            rows,
            CommitFences { fences: vec![claim.fence(id)], counters },
        )?;
        self.claim = Some(HeldClaim { claim: next, takeover: Takeover::Orderly });
        tokio::spawn(async move {
            let result = context.ledger.wait_fenced(pending).await;
            drop(context);
            let end = match result {
                FencedResult::Recorded => CommitEnd::Durable,
                FencedResult::FenceLost => CommitEnd::ClaimLost,
                FencedResult::Ended => CommitEnd::Failed,
            };
            events.send(BatchEvent::Committed(end)).ok();
        });
        Ok(())
    }

    /// Returns true if the former holder of the batch may still write to its output file.
    pub(super) fn is_output_shared(&self) -> bool {
        self.claim.is_some_and(|held| held.takeover == Takeover::Forced)
    }

    /// Stops at once: another gateway runs the batch. Results that are not committed are dropped, which voids their charges.
    pub(super) fn on_claim_lost(&mut self) {
        if self.shutdown.is_finished() {
            return;
        }
        log::event(log::warn(), "batch_claim_lost", &[("batch", &self.record.id)]);
        self.in_flight.cancel.cancel();
        self.in_flight.abort.send_replace(true);
        self.pending = PendingResults::default();
        self.claim = None;
        self.shutdown.phase = RunnerPhase::Finished;
    }

    /// Releases the claim of a batch that stops before its end, so that another gateway continues it at once.
    pub(super) async fn release_claim(&self) {
        let Some(HeldClaim { claim, .. }) = self.claim else { return };
        // The outcome of a commit that failed is unknown, and a write may still be in progress.
        if !self.lifecycle.state.is_final() && !self.disk.writing && !self.shutdown.is_finished() {
            self.app.batches.release_claim(&self.record.id, claim).await;
        }
    }
}
