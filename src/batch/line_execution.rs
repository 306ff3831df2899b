//! Lines of a batch in flight: started as run permits allow, processed like requests, and then finished or retried.

use super::commit::LineOutcome;
use super::context::{LineDisposition, LineOrigin, LineRequest, LineResponse};
use super::input::PendingLine;
use super::large_lines;
use super::runner::{BatchEvent, BatchRunner, TICK_INTERVAL};
use super::runner_state::{PauseReason, SlicingState};
use super::scheduler::RunPermit;
use crate::config::settings::BatchResultFormat;
use bytes::Bytes;
use penstock_batch::result_line;
use penstock_batch::state::{EarlyEndReason, LifecycleState};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pause before a line that yielded to online requests is retried.
const YIELD_PAUSE: Duration = Duration::from_millis(100);

impl BatchRunner {
    /// Starts as many lines as run permits, memory and the balance of the account allow.
    pub(super) fn start_lines(&mut self) {
        let now = self.app.clock.unix_seconds();
        let due = self.lifecycle.state == LifecycleState::InProgress
            && self.record.scheduled.is_none_or(|hour| hour <= now)
            && self.pause == PauseReason::None
            // While results cannot be written to the disk, no line starts.
            && (self.disk.failures == 0 || self.pending.lines.is_empty())
            && !self.app.ledger.is_failing()
            && self.app.batches.still_holds_claims();
        if due && self.divide_into_slices() {
            return;
        }
        while due && self.funds.may_start() && self.has_capacity() {
            let Some(asked) = self.next_line() else { break };
            let most = self.app.config_snapshot().settings.batches.concurrency;
            match self.scheduler_entry.try_acquire(most, self.has_no_permits()) {
                Some(permit) => self.start_line(asked, permit),
                None => {
                    self.requeue_line(asked);
                    return;
                }
            }
        }
        self.scheduler_entry.leave_queue();
    }

    /// Returns true if memory and load allow another line. A batch without lines in flight may start one regardless of
    /// both, so that it makes progress, one line after the other. No line starts while the maximum number of results
    /// waits for the disk.
    fn has_capacity(&self) -> bool {
        let share = &self.memory_limits;
        if self.in_flight.lines == 0 || self.pending.lines.len() >= share.max_results {
            return self.pending.lines.len() < share.max_results;
        }
        let expected = self.pending.bytes + self.in_flight.lines * self.pending.average_size;
        let fits = self.in_flight.bytes + self.retries.body_bytes() <= share.in_flight_bytes
            && expected <= share.result_bytes;
        fits && !self.app.admission.is_almost_full()
    }

    fn next_line(&mut self) -> Option<PendingLine> {
        if let Some(again) = self.retries.pop_due_line(Instant::now()) {
            return Some(again);
        }
        let line = if self.retries.is_full() { None } else { self.prefetched.lines.pop_front() };
        self.prefetched.bytes -= line.as_ref().map_or(0, |line| line.body.len());
        line
    }

    fn requeue_line(&mut self, line: PendingLine) {
        self.prefetched.bytes += line.body.len();
        self.prefetched.lines.push_front(line);
    }

    fn start_line(&mut self, asked: PendingLine, permit: RunPermit) {
        let Some(principal) = self.app.key_cache.find_principal(&self.record.key) else {
            self.requeue_line(asked);
            return self.end_early(EarlyEndReason::KeyRevoked);
        };
        let Some(path) = self.path else { return self.end_early(EarlyEndReason::InvalidInput) };
        self.slicing = SlicingState::Whole;
        self.in_flight.lines += 1;
        self.funds.on_line_start();
        self.in_flight.bytes += asked.body.len();
        let (body, cancel) = (asked.body.clone(), self.in_flight.cancel.clone());
        let interrupted = self.in_flight.interrupted.clone();
        let from = large_lines::BatchInputRef {
            input_file_id: self.record.input.clone(),
            account: principal.account.id.clone(),
        };
        let (context, mut abort) = (self.app.clone(), self.in_flight.abort.subscribe());
        let flight = LineTask { line: Some((asked, permit)), events: self.events.clone() };
        self.app.batches.spawn_line(async move {
            let flight = flight;
            let ask = async {
                // The memory permit is held until the line has ended.
                let (body, _memory) = large_lines::load_body(&context, &from, body, &cancel).await?;
                let executor = context.executor.get()?;
                let class = LineOrigin::Batch;
                let request = LineRequest { principal, path, body, cancel, interrupted, origin: class };
                Some(executor.execute(request).await)
            };
            let done = tokio::select! {
                done = ask => done,
                _ = abort.wait_for(|abort| *abort) => None,
            };
            drop(context);
            flight.complete(done);
        });
    }

    /// Handles the end of a line, with or without a result.
    pub(super) fn on_line_done(
        &mut self,
        mut asked: PendingLine,
        permit: RunPermit,
        done: Option<Box<LineResponse>>,
    ) {
        self.in_flight.lines = self.in_flight.lines.saturating_sub(1);
        self.in_flight.bytes = self.in_flight.bytes.saturating_sub(asked.body.len());
        let ends = self.shutdown.reason.is_some() || self.shutdown.is_stopping();
        let Some(mut done) = done else {
            // The task was aborted or has panicked. Its reservation was voided when it was dropped.
            self.funds.on_ended(1);
            if !ends {
                asked.attempts += 1;
                self.schedule_retry(asked, Duration::ZERO, false);
            }
            return;
        };
        if self.shutdown.reason == Some(EarlyEndReason::OutputDamaged) {
            // The result cannot be stored. Dropping the `hold_end` of the line voids its reservation.
            return;
        }
        let keyless = done.status == 401 && !self.is_key_active();
        let is_cancelled = done.disposition == LineDisposition::Cancelled;
        if is_cancelled || keyless || (done.disposition != LineDisposition::Final && ends) {
            if !ends {
                // The key is suspended, or it was revoked and the next tick will detect this.
                self.retries.push(asked, Instant::now() + TICK_INTERVAL * 2);
            }
            return self.void_line(done.hold_end.take());
        }
        if done.disposition == LineDisposition::FundsHeld {
            // The line becomes the first of the queue: it starts as soon as earlier lines end, regardless of how many
            // credits it needs.
            self.funds.on_funds_refused();
            self.app.metrics.batches.count_line("retried");
            return self.requeue_line(asked);
        }
        let retry = match done.disposition {
            LineDisposition::Retry(pause) => Some((pause, false)),
            LineDisposition::Yielded(pause) => Some((pause, true)),
            LineDisposition::Final | LineDisposition::FundsHeld | LineDisposition::Cancelled => None,
        };
        if let Some((wanted, waived)) = retry {
            asked.attempts += u32::from(!waived);
            if waived || self.may_retry(&asked) {
                self.app.metrics.batches.count_line("retried");
                self.void_line(done.hold_end.take());
                return self.schedule_retry(asked, wanted, waived);
            }
        }
        self.record_result(&asked, permit, *done);
    }

    /// Adds the result of a line to the results that the next commit writes.
    fn record_result(&mut self, asked: &PendingLine, permit: RunPermit, done: LineResponse) {
        let good = (200..300).contains(&done.status);
        let mut text = Vec::with_capacity(128 + done.body.iter().map(Bytes::len).sum::<usize>());
        let id = format!("batch_{}", done.request_id.as_str());
        let form = match self.app.config_snapshot().settings.compatibility.batch_results {
            BatchResultFormat::Flat => result_line::ResultLineFormat::Flat,
            BatchResultFormat::Nested => result_line::ResultLineFormat::Nested,
        };
        let body = done.body.iter().map(|piece| &**piece);
        result_line::write_result_line(&mut text, form, &id, &asked.custom_id, done.status, body);
        self.pending.since.get_or_insert_with(Instant::now);
        self.pending.bytes += text.len();
        self.pending.average_size = (self.pending.average_size * 7 + text.len()) / 8;
        self.pending.lines.push_back(LineOutcome {
            index: asked.index,
            succeeded: good,
            hold_end: done.hold_end,
            usage: done.usage,
            result: text,
            permit: Some(permit),
        });
    }

    fn is_key_active(&self) -> bool {
        let now = self.app.clock.unix_seconds();
        self.app
            .key_cache
            .find_principal(&self.record.key)
            .is_some_and(|principal| principal.is_valid_at(now))
    }

    fn may_retry(&self, asked: &PendingLine) -> bool {
        let again = self.app.config_snapshot().settings.batches.retry;
        again.next_delay(asked.attempts, Duration::ZERO, 0, self.time_left()).is_some()
    }

    /// Schedules a retry; without backoff if the line only yielded to online requests.
    fn schedule_retry(&mut self, asked: PendingLine, retry_after: Duration, waived: bool) {
        let again = self.app.config_snapshot().settings.batches.retry;
        let pause = again.next_delay(asked.attempts, retry_after, rand::random(), self.time_left());
        let pause = match pause {
            _ if waived => retry_after.max(YIELD_PAUSE),
            Some(pause) => pause,
            // No time is left for another attempt. The line stays in the retry queue until the completion window
            // ends, which ends the batch.
            None => retry_after.max(again.base_delay),
        };
        self.retries.push(asked, Instant::now() + pause);
    }

    /// Returns the time left of the completion window.
    fn time_left(&self) -> Duration {
        Duration::from_secs(self.record.expires).saturating_sub(self.app.clock.calendar_now())
    }
}

/// Line in flight. Its end is always reported to the batch, also when the task is dropped.
struct LineTask {
    line: Option<(PendingLine, RunPermit)>,
    events: mpsc::UnboundedSender<BatchEvent>,
}

impl LineTask {
    fn complete(mut self, done: Option<LineResponse>) {
        if let Some((asked, permit)) = self.line.take() {
            self.events.send(BatchEvent::LineEnded(asked, permit, done.map(Box::new))).ok();
        }
    }
}

impl Drop for LineTask {
    fn drop(&mut self) {
        if let Some((asked, permit)) = self.line.take() {
            self.events.send(BatchEvent::LineEnded(asked, permit, None)).ok();
        }
    }
}
