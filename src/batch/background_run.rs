//! Run of one background response: waits for a permit, sends the request in the name of the key, and retries like a
//! line of a batch.

use super::BatchChannels;
use super::background_watch::{Interruption, InterruptionWatch};
use super::claims::HeldClaim;
use super::commit::BatchCommitOutcome;
use super::context::{
    BatchContext, LineDisposition, LineOrigin, LineRequest, LineResponse, PreassignedResponseIdentity,
};
use super::runner::{RunnableBatch, TICK_INTERVAL};
use super::scheduler::{RunPermit, SchedulerEntry};
use crate::billing::HoldEnd;
use crate::limits::admission_control::AdmissionPermit;
use crate::storage::responses::RESPONSE_ID_PREFIX;
use bytes::Bytes;
use penstock_batch::jsonl::BATCH_PATHS;
use penstock_dialect::background_response::{
    BackgroundResponseState, ResponseFailure, failure_from_envelope, pending_request_body,
};
use penstock_storage::StoreHealth;
use penstock_storage::batches::{BatchRecord, BatchState};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Time for which a request may continue when the gateway stops, and again after its cancellation.
const GRACE_PERIOD: Duration = Duration::from_secs(3);
/// Pause before a request that got no permit is sent again.
const YIELD_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of starts. It limits how often one request can crash the process.
const MAX_STARTS: u32 = 3;

const STOPPED_OFTEN: &str =
    "The gateway stopped three times while it generated this response; send the request again.";
const LOST: &str = "The gateway does not have the request of this response any more; send it again.";

/// End of a response.
pub(super) enum ResponseEnd {
    /// Answer object and the end of its reserve.
    Answered(Vec<u8>, Option<HoldEnd>),
    /// End without an answer.
    Unanswered(BackgroundResponseState<'static>),
}

/// Outcome of the run in this process.
enum RunOutcome {
    /// The response has ended, with its answer or an error.
    Ended(ResponseEnd),
    /// Another process has to continue the response.
    Interrupted(Interruption),
}

/// Phase of a run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundRunPhase {
    /// The run has not started yet.
    Waiting,
    /// Running: the start is committed and counts towards the maximum number of starts.
    Started,
}

/// Next step after an attempt.
enum AttemptResult {
    Ended(ResponseEnd),
    Retry(Duration),
}

/// Background response that runs in this process.
pub(super) struct ResponseRun {
    pub(super) app: Arc<BatchContext>,
    pub(super) record: BatchRecord,
    pub(super) claim: Option<HeldClaim>,
    pub(super) published: watch::Sender<Arc<BatchRecord>>,
    pub(super) phase: BackgroundRunPhase,
    attempts: u32,
}

/// Runs a response until it has ended, its claim is lost or the gateway stops.
pub(super) async fn run_response(
    context: Arc<BatchContext>,
    start: RunnableBatch,
    (commands, published): BatchChannels,
) {
    let mut watch = InterruptionWatch::new(&context, &start.record, commands);
    let RunnableBatch { record, claim } = start;
    let mut run = ResponseRun {
        app: context.clone(),
        record,
        claim,
        published,
        phase: BackgroundRunPhase::Waiting,
        attempts: 0,
    };
    let outcome = match run.execute(&mut watch).await {
        RunOutcome::Ended(end) => run.finish(end, &mut watch).await,
        RunOutcome::Interrupted(why) => Some(why),
    };
    match outcome {
        None => watch.report_end(&Arc::new(run.record.clone())),
        Some(Interruption::ClaimLost) => {
            tracing::warn!(name: "batch_claim_lost", batch = run.record.id);
        }
        Some(_) => run.release_claim().await,
    }
    context.batches.unregister(&run.record.id);
}

impl ResponseRun {
    async fn execute(&mut self, watch: &mut InterruptionWatch) -> RunOutcome {
        let entry = self.app.batches.response_scheduler.register_batch(&self.record.account);
        loop {
            let permit = tokio::select! {
                biased;
                why = watch.wait_for_interruption() => return interruption_outcome(why),
                permit = self.acquire(&entry) => permit,
            };
            if self.phase == BackgroundRunPhase::Waiting
                && let Some(end) = self.begin().await
            {
                return end;
            }
            let result = self.attempt(watch, permit).await;
            let pause = match result {
                Ok(AttemptResult::Ended(end)) => return RunOutcome::Ended(end),
                Ok(AttemptResult::Retry(pause)) => pause,
                Err(why) => return interruption_outcome(why),
            };
            tokio::select! {
                biased;
                why = watch.wait_for_interruption() => return interruption_outcome(why),
                () = sleep(pause) => {}
            }
        }
    }

    /// Waits until the response may be generated.
    async fn acquire(&self, entry: &SchedulerEntry) -> RunPermit {
        loop {
            if self.may_start() {
                let most = self.app.config_snapshot().settings.responses.background.concurrency;
                if let Some(permit) = entry.try_acquire(most, false) {
                    return permit;
                }
            } else {
                entry.leave_queue();
            }
            tokio::select! {
                () = entry.wait_for_grant() => {}
                () = sleep(TICK_INTERVAL) => {}
            }
        }
    }

    fn may_start(&self) -> bool {
        let batches = &self.app.batches;
        let principal = self.app.key_cache.find_principal(&self.record.key);
        principal.is_some_and(|principal| principal.is_valid_at(self.app.clock.unix_seconds()))
            && batches.backend.health() == StoreHealth::Ready
            && !self.app.ledger.is_failing()
            && batches.still_holds_claims()
    }

    /// Commits the start; returns the outcome if the response does not start.
    async fn begin(&mut self) -> Option<RunOutcome> {
        let background = self.record.background.get_or_insert_default();
        if background.starts >= MAX_STARTS {
            return Some(RunOutcome::Ended(failed_response_end(ResponseFailure::server_error(
                STOPPED_OFTEN,
            ))));
        }
        background.starts += 1;
        self.phase = BackgroundRunPhase::Started;
        self.record.state = BatchState::InProgress;
        self.record.in_progress = Some(self.app.clock.unix_seconds());
        match self.commit(None).await {
            BatchCommitOutcome::Durable => None,
            BatchCommitOutcome::ClaimLost => Some(RunOutcome::Interrupted(Interruption::ClaimLost)),
            BatchCommitOutcome::Failed => Some(RunOutcome::Interrupted(Interruption::Stopping)),
        }
    }

    /// Sends the request once.
    async fn attempt(
        &mut self,
        watch: &mut InterruptionWatch,
        permit: RunPermit,
    ) -> Result<AttemptResult, Interruption> {
        let (body, memory) = match self.load_request().await {
            Ok(Some(loaded)) => loaded,
            Ok(None) => {
                return Ok(AttemptResult::Ended(failed_response_end(ResponseFailure::server_error(LOST))));
            }
            Err(pause) => return Ok(AttemptResult::Retry(pause)),
        };
        let (cancel, interrupted) = (CancellationToken::new(), CancellationToken::new());
        let Some(mut done) = self.start_line(body, (memory, permit), (&cancel, &interrupted)) else {
            return Ok(AttemptResult::Retry(TICK_INTERVAL));
        };
        let why = tokio::select! {
            biased;
            done = &mut done => return Ok(self.on_done(done.ok())),
            why = watch.wait_for_interruption() => why,
        };
        if matches!(why, Interruption::Stopping)
            && let Ok(done) = timeout(GRACE_PERIOD, &mut done).await
        {
            return Ok(self.on_done(done.ok()));
        }
        if matches!(why, Interruption::Stopping | Interruption::ClaimLost) {
            interrupted.cancel();
        }
        cancel.cancel();
        // The result of a request that does not end in time is dropped and not charged.
        timeout(GRACE_PERIOD, done).await.ok();
        Err(why)
    }

    /// Starts the request on the threads of batches; `None` if its key no longer exists, or if the executor is not set.
    fn start_line(
        &self,
        body: Bytes,
        held: (AdmissionPermit, RunPermit),
        (cancel, interrupted): (&CancellationToken, &CancellationToken),
    ) -> Option<oneshot::Receiver<LineResponse>> {
        let principal = self.app.key_cache.find_principal(&self.record.key)?;
        let executor = self.app.executor.get()?.clone();
        let path = BATCH_PATHS.iter().copied().find(|path| *path == self.record.endpoint)?;
        let unique = self.record.id.strip_prefix(RESPONSE_ID_PREFIX).unwrap_or_default();
        let identity =
            PreassignedResponseIdentity { unique: unique.into(), created: self.record.created_ms / 1_000 };
        let class = LineOrigin::Background(identity);
        let (cancel, interrupted) = (cancel.clone(), interrupted.clone());
        let ask = LineRequest { principal, path, body, cancel, interrupted, origin: class };
        let (tell, done) = oneshot::channel();
        self.app.batches.spawn_line(async move {
            // The memory and the run permit are held until the request has ended.
            let _held = held;
            tell.send(executor.execute(ask).await).ok();
        });
        Some(done)
    }

    /// Reads the body of the client's request, with a permit for its memory. Returns `None` if the document no longer
    /// exists, or as an error the pause after which to try again.
    async fn load_request(&self) -> Result<Option<(Bytes, AdmissionPermit)>, Duration> {
        let document = self.load_document().await.map_err(|_| Duration::from_secs(1))?;
        let Some(request) = document.as_deref().and_then(pending_request_body) else { return Ok(None) };
        let mut memory = self.app.admission.acquire_for_batch_line(&self.record.account.as_str().into());
        memory.reserve_bytes(request.len()).map_err(|_| Duration::from_secs(1))?;
        Ok(Some((Bytes::copy_from_slice(request), memory)))
    }

    /// Reads the document; `None` if it was deleted, has expired or cannot be decrypted.
    pub(super) async fn load_document(&self) -> std::io::Result<Option<Vec<u8>>> {
        let (app, key, id) = (self.app.clone(), self.record.key.clone(), self.record.id.clone());
        let read = move || {
            let retention = app.config_snapshot().settings.responses.retention;
            app.responses.get(&key, &id, app.clock.unix_seconds(), retention)
        };
        match spawn_blocking(read).await.unwrap_or_else(|_| Err(ErrorKind::Other.into())) {
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(None),
            read => read,
        }
    }

    /// Handles the result of the request; `done` is `None` if the task of the request panicked.
    fn on_done(&mut self, done: Option<LineResponse>) -> AttemptResult {
        let Some(mut done) = done else {
            self.attempts += 1;
            return self.retry_or_fail(Duration::ZERO, 500, b"");
        };
        let is_keyless = done.status == 401 && !self.may_start();
        let pause = match done.disposition {
            _ if is_keyless => TICK_INTERVAL * 2,
            LineDisposition::Final => return self.on_answer(done),
            LineDisposition::Retry(wanted) => {
                self.void(done.hold_end.take());
                self.attempts += 1;
                return self.retry_or_fail(wanted, done.status, &done.body.concat());
            }
            LineDisposition::Yielded(wanted) => wanted.max(YIELD_PAUSE),
            LineDisposition::FundsHeld | LineDisposition::Cancelled => TICK_INTERVAL,
        };
        self.void(done.hold_end.take());
        AttemptResult::Retry(pause)
    }

    fn on_answer(&self, done: LineResponse) -> AttemptResult {
        let body = done.body.concat();
        if (200..300).contains(&done.status) {
            return AttemptResult::Ended(ResponseEnd::Answered(body, done.hold_end));
        }
        self.void(done.hold_end);
        AttemptResult::Ended(failed_response_end(failure_from_envelope(done.status, &body)))
    }

    fn retry_or_fail(&self, retry_after: Duration, status: u16, refusal: &[u8]) -> AttemptResult {
        let left = Duration::from_secs(self.record.expires).saturating_sub(self.app.clock.calendar_now());
        let policy = self.app.config_snapshot().settings.batches.retry;
        match policy.next_delay(self.attempts, retry_after, rand::random(), left) {
            Some(pause) => AttemptResult::Retry(pause),
            None => AttemptResult::Ended(failed_response_end(failure_from_envelope(status, refusal))),
        }
    }

    /// Ends the reserve of a request without a result.
    fn void(&self, end: Option<HoldEnd>) {
        if let Some(end) = end {
            self.app.ledger.record_outcomes(vec![end], Vec::new()).ok();
        }
    }
}

/// Returns the end of a response that failed.
pub(super) const fn failed_response_end(failure: ResponseFailure<'static>) -> ResponseEnd {
    ResponseEnd::Unanswered(BackgroundResponseState::Failed(failure))
}

/// Returns the outcome of an interrupted run.
fn interruption_outcome(why: Interruption) -> RunOutcome {
    match why {
        Interruption::Ended(state) => RunOutcome::Ended(ResponseEnd::Unanswered(state)),
        Interruption::ClaimLost | Interruption::Stopping => RunOutcome::Interrupted(why),
    }
}
