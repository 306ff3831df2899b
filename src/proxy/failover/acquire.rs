//! Permit of a provider before an attempt: a free permit, a permit after a wait, or the permit of a batch line that
//! yields.

use super::attempt::AttemptError;
use super::wait::WaitOutcome;
use super::{FailoverRun, streaming};
use crate::limits::admission_control::ShedReason;
use crate::upstream::offer::{OfferPermit, OfferState, OfferWaiters};
use penstock_limits::WorkClass;
use penstock_routing::{AttemptOutcome, RetryPlanner};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait of an interactive request for a batch line that was asked to release its permit.
const RECLAIM_TIMEOUT: Duration = Duration::from_secs(1);
/// Duration of the timer for a wait without a deadline.
const UNBOUNDED_WAIT: Duration = Duration::from_secs(3_600);
/// Interval at which a waiting batch request checks whether the gateway needs its admission permit.
const CROWDED_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Outcome of acquiring a permit.
pub(super) enum AcquireOutcome {
    /// The permit was acquired.
    Permit(OfferPermit),
    /// The provider must not be called, or batch work has waited too long.
    Unavailable,
    /// The provider must not be called before this time of the steady clock.
    RetryAt(Duration),
    /// The provider is at its concurrency limit.
    Full,
}

impl FailoverRun<'_, '_> {
    /// Acquires a permit of the provider if its breaker allows a request. A `held_permit` is used if there is one. If
    /// the provider is at its concurrency limit, batch work waits in the queue; other requests get the permit of a
    /// batch line or continue with the next provider.
    pub(super) async fn acquire_permit(
        &mut self,
        offer: &Arc<OfferState>,
        held_permit: Option<OfferPermit>,
        course: &mut RetryPlanner,
    ) -> Result<AcquireOutcome, AttemptError> {
        if let Some(not) = self.blocked_by_breaker(offer) {
            return Ok(not);
        }
        if let Some(permit) = held_permit {
            return Ok(AcquireOutcome::Permit(permit));
        }
        let batch = self.candidates.batch;
        let account = &self.exchange.principal.account.id;
        let waiting = if batch {
            Some(offer.acquire_or_queue(account, self.exchange.caller.permit_recall_token()))
        } else {
            None
        };
        let waiting = match waiting {
            None => match offer.try_acquire() {
                Some(permit) => return Ok(AcquireOutcome::Permit(permit)),
                None => offer.preempt_batch_line(account),
            },
            Some(Ok(permit)) => return Ok(AcquireOutcome::Permit(permit)),
            Some(Err(waiting)) => Some(waiting),
        };
        // If the breaker has granted this request as a probe, the probe is given back, because no request is sent now.
        self.record_neutral_outcome(offer);
        let Some(waiting) = waiting else { return Ok(AcquireOutcome::Full) };
        let began = Instant::now();
        let permit = Box::pin(self.wait_for_permit(waiting, self.permit_timeout())).await;
        let waited = began.elapsed();
        self.exchange.record.queued += waited;
        if batch {
            // Waiting in the batch queue does not count as the provider's time.
            self.deadline += waited;
            course.extend_deadline(waited);
        }
        Ok(match permit? {
            Some(permit) => self.blocked_by_breaker(offer).unwrap_or(AcquireOutcome::Permit(permit)),
            None if batch => AcquireOutcome::Unavailable,
            None => AcquireOutcome::Full,
        })
    }

    /// Waits for a limited time for a permit of any of the full providers, in fair order with other accounts. Returns
    /// `None` after that time, or if the queue is full.
    pub(super) async fn wait_in_queue(
        &mut self,
        course: &RetryPlanner,
    ) -> Result<Option<OfferPermit>, AttemptError> {
        let overload = self.exchange.config.settings.overload;
        self.had_unavailable = true;
        let offers = course
            .full_offers(self.now())
            .filter_map(|index| self.exchange.config.offers.get(index).cloned());
        let waiting = OfferWaiters::enqueue(offers, &self.exchange.principal.account.id, overload.queue);
        let Some(waiting) = waiting else {
            self.exchange.app.admission.count_refusal(ShedReason::QueueFull);
            return Ok(None);
        };
        let began = Instant::now();
        let permit = Box::pin(self.wait_for_permit(waiting, overload.wait)).await;
        let waited = began.elapsed();
        self.exchange.record.queued += waited;
        self.exchange.app.metrics.record_wait("provider", waited);
        let permit = permit?;
        if permit.is_none() {
            self.exchange.app.admission.count_refusal(ShedReason::Provider);
        }
        Ok(permit)
    }

    /// Records that the current attempt ended without evidence about the offer. If it was a probe, its permit is given
    /// back.
    pub(super) fn record_neutral_outcome(&self, offer: &OfferState) {
        offer.record_outcome(self.now(), self.admission, AttemptOutcome::Neutral, None, None);
    }

    /// Returns the reason why the provider must not be called now, or `None` if it may be called; permits are not
    /// checked here. If the breaker is half open, the allowed request is a probe. The check is repeated after a wait
    /// for a permit, because the provider may have failed during the wait.
    fn blocked_by_breaker(&mut self, offer: &OfferState) -> Option<AcquireOutcome> {
        let (now, mut breaker) = (self.now(), offer.breaker.lock());
        if let Some(retry_at) = breaker.cooldown_until(now) {
            return Some(AcquireOutcome::RetryAt(retry_at));
        }
        self.admission = match breaker.try_acquire(now) {
            Some(admission) => admission,
            None if self.candidates.all_ejected => breaker.last_resort_admission(),
            None => return Some(AcquireOutcome::Unavailable),
        };
        None
    }

    /// Returns the longest wait for a permit. A batch line with a single candidate waits until it is cancelled.
    fn permit_timeout(&self) -> Duration {
        match (self.candidates.batch, self.exchange.work) {
            (true, WorkClass::BatchLine) if self.candidates.entries.len() == 1 => Duration::MAX,
            (true, _) => self.exchange.config.settings.routing.batch_wait,
            (false, _) => RECLAIM_TIMEOUT,
        }
    }

    /// Waits for a permit, at most `patience`. Returns `None` after that time, or if a batch request would block others
    /// because the gateway is almost full. During a long wait, the head of a stream and heartbeats are sent; if the
    /// request fails later, the stream ends with an error event instead of an error status.
    async fn wait_for_permit(
        &mut self,
        mut waiting: OfferWaiters,
        patience: Duration,
    ) -> Result<Option<OfferPermit>, AttemptError> {
        let now = Instant::now();
        let wait_deadline = match self.exchange.work {
            _ if self.candidates.batch => now.checked_add(patience),
            WorkClass::BatchLine | WorkClass::Request => Some((now + patience).min(self.deadline)),
        };
        let heartbeat_due = now + self.exchange.config.settings.limits.heartbeat;
        let blocks_requests = self.candidates.batch && self.exchange.work == WorkClass::Request;
        loop {
            if blocks_requests && self.exchange.app.admission.is_almost_full() {
                self.exchange.app.admission.count_refusal(ShedReason::Batch);
                return Ok(None);
            }
            let end = wait_deadline.unwrap_or_else(|| Instant::now() + UNBOUNDED_WAIT);
            // Once the head of a stream was sent, heartbeats are sent during each wait.
            let needs_head = self.request.streams_events() && !self.progress.has_head();
            let alarm = if needs_head { end.min(heartbeat_due) } else { end };
            let alarm =
                if blocks_requests { alarm.min(Instant::now() + CROWDED_CHECK_INTERVAL) } else { alarm };
            let permit = pin!(waiting.acquire());
            match self.watch.wait_for_work(&mut self.exchange.caller, permit, alarm).await {
                WaitOutcome::Ready(permit) => return Ok(permit),
                WaitOutcome::Disconnected => return Err(AttemptError::Disconnected),
                WaitOutcome::Interrupted => return Err(AttemptError::Interrupted),
                WaitOutcome::Deadline if wait_deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Ok(None);
                }
                WaitOutcome::Deadline if needs_head && Instant::now() >= heartbeat_due => {
                    streaming::write_heartbeat(self).await?
                }
                WaitOutcome::Deadline => {}
            }
        }
    }
}
