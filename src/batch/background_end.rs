//! End of a background response: its document is written to the disk, then one commit writes the charge and the final
//! record. A response that another process has to continue is released instead.

use super::background_run::{BackgroundRunPhase, ResponseEnd, ResponseRun, failed_response_end};
use super::background_watch::{Interruption, InterruptionWatch};
use super::claimed_commit;
use super::claims::HeldClaim;
use super::commit::BatchCommitOutcome;
use crate::billing::HoldEnd;
use penstock_dialect::background_response::{
    BackgroundResponseState, ResponseFailure, build_ended_document, has_answer, with_background_state,
};
use penstock_dialect::stored_response::StoredResponse;
use penstock_storage::batches::{self, BatchState};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Maximum number of attempts to write the answer. The pause after the first failure is `FIRST_WRITE_PAUSE`, and
/// doubles after each further one.
const MAX_WRITES: u32 = 8;
const FIRST_WRITE_PAUSE: Duration = Duration::from_millis(250);

const DELETED: &str = "This response was deleted before its answer was complete, and is not charged.";
const NOT_STORED: &str = "The answer could not be stored, and is not charged; send the request again.";

/// Outcome of writing the end of a response to its document.
enum EndWrite {
    Written,
    /// The document was deleted, evicted or has expired, so no client can read the answer.
    DocumentGone,
}

impl ResponseRun {
    /// Stores and commits the end; returns the interruption if another process continues the response.
    pub(super) async fn finish(
        &mut self,
        end: ResponseEnd,
        watch: &mut InterruptionWatch,
    ) -> Option<Interruption> {
        let end = match self.store_end(end, watch).await {
            Ok(end) => end,
            Err(why) => return Some(why),
        };
        let (state, hold) = match end {
            ResponseEnd::Answered(_, hold) => (BatchState::Completed, hold),
            ResponseEnd::Unanswered(BackgroundResponseState::Cancelled) => (BatchState::Cancelled, None),
            ResponseEnd::Unanswered(_) => (BatchState::Failed, None),
        };
        self.record.state = state;
        match self.commit(hold).await {
            BatchCommitOutcome::Durable => {
                self.app.batches.log_background_response_end(&self.app, &self.record);
                None
            }
            BatchCommitOutcome::ClaimLost => Some(Interruption::ClaimLost),
            BatchCommitOutcome::Failed => Some(Interruption::Stopping),
        }
    }

    /// Writes the end of the response to its document, and retries after an error. If an answer cannot be written, or
    /// the document no longer exists, the response fails and its reserve is voided. A failure may stay unwritten,
    /// because a response without a record counts as failed.
    async fn store_end(
        &self,
        end: ResponseEnd,
        watch: &mut InterruptionWatch,
    ) -> Result<ResponseEnd, Interruption> {
        let mut pause = FIRST_WRITE_PAUSE;
        for _ in 0..MAX_WRITES {
            // A gateway that may have lost its claim must not overwrite the answer that another gateway wrote.
            if self.app.batches.still_holds_claims() {
                match self.write_end(&end).await {
                    Ok(EndWrite::DocumentGone) if matches!(end, ResponseEnd::Answered(..)) => {
                        return Ok(failed_response_end(ResponseFailure::server_error(DELETED)));
                    }
                    Ok(_) => return Ok(end),
                    Err(error) => {
                        tracing::error!(
                            name: "response_not_stored",
                            id = &*self.record.id,
                            why = %error.kind(),
                        );
                    }
                }
            }
            if matches!(end, ResponseEnd::Unanswered(_)) && self.app.batches.still_holds_claims() {
                return Ok(end);
            }
            tokio::select! {
                biased;
                why = watch.wait_for_claim_loss_or_stop() => return Err(why),
                () = sleep(pause) => {}
            }
            pause *= 2;
        }
        Ok(failed_response_end(ResponseFailure::server_error(NOT_STORED)))
    }

    async fn write_end(&self, end: &ResponseEnd) -> std::io::Result<EndWrite> {
        let Some(document) = self.load_document().await? else { return Ok(EndWrite::DocumentGone) };
        let invalid = || std::io::Error::from(ErrorKind::InvalidData);
        let stored = StoredResponse::parse(&document).ok_or_else(invalid)?;
        let response = match end {
            ResponseEnd::Answered(response, _) if has_answer(response) => response.clone(),
            ResponseEnd::Answered(..) => return Err(invalid()),
            ResponseEnd::Unanswered(state) => with_background_state(stored.response, state),
        };
        let ended = build_ended_document(&document, &response).ok_or_else(invalid)?;
        let (app, key, id) = (self.app.clone(), self.record.key.clone(), self.record.id.clone());
        // The retention period starts at the end of the response, because the run alone may take most of such a
        // period.
        let write = move || {
            let now = app.clock.unix_seconds();
            app.responses.finish((&key, &id), now, &ended, app.stored_response_limits())
        };
        let written = spawn_blocking(write).await.unwrap_or_else(|_| Err(ErrorKind::Other.into()));
        written.map(|()| EndWrite::Written)
    }

    /// Commits the record with the end of a reserve, and publishes it.
    pub(super) async fn commit(&mut self, hold: Option<HoldEnd>) -> BatchCommitOutcome {
        let Ok(rows) = batches::batch_row_writes(&self.record, None) else {
            return BatchCommitOutcome::Failed;
        };
        let ends = Vec::from_iter(hold);
        let commit =
            claimed_commit::commit_outcomes(&self.app, &self.record, self.claim, (ends, rows, Vec::new()));
        let Ok((claim, durable)) = commit else { return BatchCommitOutcome::Failed };
        self.claim = claim;
        let end = durable.await;
        if end == BatchCommitOutcome::Durable {
            self.published.send_replace(Arc::new(self.record.clone()));
        }
        end
    }

    /// Releases the response, so that another gateway of the fleet or the next process starts it again. The start in
    /// this process then does not count towards the maximum number of starts.
    pub(super) async fn release_claim(&mut self) {
        if self.phase == BackgroundRunPhase::Started
            && let Some(background) = &mut self.record.background
        {
            background.starts = background.starts.saturating_sub(1);
            if self.commit(None).await != BatchCommitOutcome::Durable {
                return;
            }
        }
        if let Some(HeldClaim { claim, .. }) = self.claim {
            self.app.batches.release_claim(&self.record.id, claim).await;
        }
    }
}
