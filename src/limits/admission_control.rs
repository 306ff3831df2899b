//! Admission control: limits the number of concurrent requests and the bytes that they hold. If the process is full, a
//! request waits for a permit for a limited time, round-robin by account. If it gets none, it is refused with a time
//! after which to retry. Each request takes a lock briefly at its start and at its end.

use crate::config::settings;
use crate::telemetry::overload::AdmissionSnapshot;
use parking_lot::{Mutex, MutexGuard};
use penstock_core::{ApiError, ErrorCode};
use penstock_limits::{AdmissionCapacity, AdmissionController, AdmissionEnqueueOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Admission control of the process.
#[derive(Debug)]
pub struct AdmissionControl {
    queue: Mutex<AdmissionController<oneshot::Sender<AdmissionPermit>>>,
    refused: [AtomicU64; ShedReason::ALL.len()],
}

/// Reason of a refusal for a temporary lack of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedReason {
    /// Refusal because too many other requests wait.
    QueueFull,
    /// Refusal because no permit of the process became free in time.
    AdmissionTimeout,
    /// Refusal because no permit of a provider became free in time.
    Provider,
    /// Refusal because the request would hold too many bytes together with the other requests.
    Bytes,
    /// End of the wait of batch work for a provider, because the gateway is almost full.
    Batch,
}

impl ShedReason {
    /// All reasons for a refusal.
    pub const ALL: [Self; 5] =
        [Self::QueueFull, Self::AdmissionTimeout, Self::Provider, Self::Bytes, Self::Batch];

    /// Returns the name of the reason in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue",
            Self::AdmissionTimeout => "process",
            Self::Provider => "provider",
            Self::Bytes => "bytes",
            Self::Batch => "batch",
        }
    }
}

/// Permit of a request, with the bytes that the request holds; both are released when dropped.
#[derive(Debug)]
pub struct AdmissionPermit {
    admission: Arc<AdmissionControl>,
    /// Account of the request, to which its bytes are counted.
    account: Arc<str>,
    /// True if the permit also counts a request in flight; false for a line of a batch.
    counts_request: bool,
    bytes: usize,
}

impl AdmissionControl {
    /// Creates an admission control with these limits and no requests.
    #[must_use]
    pub fn new(settings: &settings::OverloadSettings) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::new(AdmissionController::new(admission_capacity(settings))),
            refused: Default::default(),
        })
    }

    /// Changes the limits; requests that were admitted remain admitted.
    pub fn configure(self: &Arc<Self>, settings: &settings::OverloadSettings) {
        let mut crowd = self.queue.lock();
        crowd.set_capacity(admission_capacity(settings));
        self.wake_waiters(crowd);
    }

    /// Acquires a permit for a request of this account with a body of `body_bytes`; waits at most `max_wait` if no
    /// permit is free. Also returns the time spent in the queue; `None` if the request did not wait.
    ///
    /// # Errors
    /// Returns 503 with a time after which to retry, if too many requests wait or no permit became free in time.
    pub async fn acquire(
        self: &Arc<Self>,
        account: &Arc<str>,
        body_bytes: usize,
        max_wait: Duration,
    ) -> (Result<AdmissionPermit, ApiError>, Option<Duration>) {
        let (number, waiter) = {
            let mut crowd = self.queue.lock();
            if crowd.try_admit(account, body_bytes) {
                return (
                    Ok(AdmissionPermit {
                        admission: self.clone(),
                        account: account.clone(),
                        counts_request: true,
                        bytes: body_bytes,
                    }),
                    None,
                );
            }
            let (hand, waiter) = oneshot::channel();
            match crowd.enqueue(account, body_bytes, hand) {
                AdmissionEnqueueOutcome::Full => {
                    return (Err(self.count_and_build_refusal(ShedReason::QueueFull)), None);
                }
                AdmissionEnqueueOutcome::Waiting(number, gone) => {
                    drop(crowd);
                    drop(gone);
                    (number, waiter)
                }
            }
        };
        let mut waiter = QueueTicket { admission: self, account, number, receiver: waiter };
        let began = Instant::now();
        let permit = match timeout(max_wait, &mut waiter.receiver).await {
            Ok(Ok(permit)) => Ok(permit),
            // The waiting request was displaced by a request of an account with fewer waiting requests.
            Ok(Err(_)) => Err(self.count_and_build_refusal(ShedReason::QueueFull)),
            Err(_) => Err(self.count_and_build_refusal(ShedReason::AdmissionTimeout)),
        };
        (permit, Some(began.elapsed()))
    }

    /// Returns a permit that counts only bytes of this account, and holds none at first. It is for a line of a batch,
    /// or for a request without a permit. Never waits.
    #[must_use]
    pub fn acquire_for_batch_line(self: &Arc<Self>, account: &Arc<str>) -> AdmissionPermit {
        AdmissionPermit { admission: self.clone(), account: account.clone(), counts_request: false, bytes: 0 }
    }

    /// Returns true if seven eighths of the requests or bytes are in use, or a request waits. Batch work then pauses.
    #[must_use]
    pub fn is_almost_full(&self) -> bool {
        self.queue.lock().is_under_pressure()
    }

    /// Returns the number of requests in flight, the bytes that they hold, and the number of waiting requests.
    #[must_use]
    pub fn load_status(&self) -> AdmissionSnapshot {
        let crowd = self.queue.lock();
        AdmissionSnapshot {
            requests: crowd.in_flight(),
            bytes: crowd.bytes_in_flight(),
            waiting: crowd.queued_count(),
        }
    }

    /// Counts a refusal for a reason.
    pub fn count_refusal(&self, why: ShedReason) {
        if let Some(count) = self.refused.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of refusals so far, by reason.
    pub fn shed_totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ShedReason::ALL
            .iter()
            .zip(&self.refused)
            .map(|(why, count)| (why.name(), count.load(Ordering::Relaxed)))
    }

    /// Counts a refusal for a reason, and returns it: 503 with a time after which to retry.
    pub fn count_and_build_refusal(&self, why: ShedReason) -> ApiError {
        self.count_refusal(why);
        // The time to retry is random, so that requests that are refused together do not retry together.
        ApiError::new(ErrorCode::Overloaded).with_retry_after(rand::random_range(1..=3))
    }

    /// Admits the waiting requests that fit now, after a permit or bytes were released, or the limits were changed. The
    /// requests are notified after the lock is released.
    fn wake_waiters(
        self: &Arc<Self>,
        mut crowd: MutexGuard<'_, AdmissionController<oneshot::Sender<AdmissionPermit>>>,
    ) {
        if crowd.queued_count() == 0 {
            return;
        }
        let mut handed = Vec::new();
        while let Some((account, bytes, hand)) = crowd.admit_next() {
            let permit = AdmissionPermit { admission: self.clone(), account, counts_request: true, bytes };
            handed.push((hand, permit));
        }
        drop(crowd);
        for (hand, permit) in handed {
            // If the request no longer exists, its permit is dropped, which releases it.
            hand.send(permit).ok();
        }
    }
}

const fn admission_capacity(settings: &settings::OverloadSettings) -> AdmissionCapacity {
    AdmissionCapacity { requests: settings.requests, bytes: settings.bytes, queue: settings.queue }
}

impl AdmissionPermit {
    /// Reserves further bytes of memory for the request.
    ///
    /// # Errors
    /// Returns 503 if the other requests, or those of the account, hold too many bytes.
    pub fn reserve_bytes(&mut self, bytes: usize) -> Result<(), ApiError> {
        let is_added = self.admission.queue.lock().try_add_bytes(&self.account, bytes);
        self.record_added(bytes, is_added)
    }

    /// Reserves further bytes of memory for a body without an announced length, as if its present length had been
    /// announced.
    ///
    /// # Errors
    /// Returns 503 if the other requests, or those of the account, hold too many bytes.
    pub fn reserve_body_bytes(&mut self, bytes: usize) -> Result<(), ApiError> {
        let size = self.bytes.saturating_add(bytes);
        let is_added = self.admission.queue.lock().try_grow_body(&self.account, bytes, size);
        self.record_added(bytes, is_added)
    }

    fn record_added(&mut self, bytes: usize, is_added: bool) -> Result<(), ApiError> {
        if !is_added {
            return Err(self.admission.count_and_build_refusal(ShedReason::Bytes));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Returns the bytes held by the request.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut crowd = self.admission.queue.lock();
        if self.counts_request {
            crowd.release(&self.account, self.bytes);
        } else {
            crowd.release_bytes(&self.account, self.bytes);
        }
        self.admission.wake_waiters(crowd);
    }
}

/// Position in the queue, given up when dropped.
struct QueueTicket<'o> {
    admission: &'o Arc<AdmissionControl>,
    account: &'o Arc<str>,
    number: u64,
    receiver: oneshot::Receiver<AdmissionPermit>,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        let mut crowd = self.admission.queue.lock();
        crowd.cancel(self.account, self.number);
        // A smaller request behind this one may fit.
        self.admission.wake_waiters(crowd);
        // A permit that is sent from now on returns to its sender; a permit that was already sent is dropped with the
        // channel.
        self.receiver.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WAIT: Duration = Duration::from_secs(2);

    fn control(requests: usize, queue: usize) -> Arc<AdmissionControl> {
        AdmissionControl::new(&settings::OverloadSettings {
            requests,
            bytes: 4 << 20,
            queue,
            wait: WAIT,
            counting: 2,
        })
    }

    fn account(name: &str) -> Arc<str> {
        name.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_gateway_answers_503_with_retry_after() {
        let control = control(1, 1);
        let (permit, waited) = control.acquire(&account("a"), 10, WAIT).await;
        assert!(waited.is_none());
        let (theirs, account) = (control.clone(), account("a"));
        let waiting = tokio::spawn(async move { theirs.acquire(&account, 0, WAIT).await });
        while control.load_status().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let (third, waited) = control.acquire(&"a".into(), 0, WAIT).await;
        let third = third.unwrap_err();
        assert_eq!((third.spec().status, waited), (503, None), "at once");
        assert!((1..=3).contains(&third.retry_after.unwrap()));
        let began = tokio::time::Instant::now();
        assert_eq!(waiting.await.unwrap().0.unwrap_err().code, ErrorCode::Overloaded);
        assert_eq!(began.elapsed().as_secs(), 2);
        drop(permit);
        assert_eq!(control.load_status(), AdmissionSnapshot { requests: 0, bytes: 0, waiting: 0 });
        let refusals: Vec<_> = control.shed_totals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(refusals, [("queue", 1), ("process", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_fits_is_admitted_when_the_one_before_it_leaves() {
        let control = control(8, 8);
        let _first = control.acquire(&account("b"), 2 << 20, WAIT).await.0.unwrap();
        let second = control.acquire(&account("c"), 1 << 20, WAIT).await.0.unwrap();
        let wait_for = |bytes: usize| {
            let theirs = control.clone();
            tokio::spawn(async move { theirs.acquire(&account("a"), bytes, WAIT).await.0 })
        };
        let large = wait_for(2 << 20);
        while control.load_status().waiting < 1 {
            tokio::task::yield_now().await;
        }
        let small = wait_for(1 << 20);
        while control.load_status().waiting < 2 {
            tokio::task::yield_now().await;
        }
        // The small one fits from now on, but the large one comes first.
        drop(second);
        let began = tokio::time::Instant::now();
        large.abort();
        let permit = small.await.unwrap().unwrap();
        assert_eq!((permit.held_bytes(), began.elapsed()), (1 << 20, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_permit_goes_to_a_waiter() {
        let control = control(1, 4);
        let first = control.acquire(&account("a"), 1 << 20, WAIT).await.0.unwrap();
        let theirs = control.clone();
        let next = tokio::spawn(async move { theirs.acquire(&account("b"), 5, WAIT).await });
        while control.load_status().waiting == 0 {
            tokio::task::yield_now().await;
        }
        drop(first);
        assert_eq!(
            control.load_status(),
            AdmissionSnapshot { requests: 1, bytes: 5, waiting: 0 },
            "it was never free"
        );
        let mut permit = next.await.unwrap().0.unwrap();
        assert!(permit.reserve_bytes(4 << 20).is_err() && permit.reserve_bytes(1 << 20).is_ok());
        assert_eq!(permit.held_bytes(), (1 << 20) + 5);
        let mut line = control.acquire_for_batch_line(&account("c"));
        line.reserve_bytes(1 << 20).unwrap();
        drop((permit, line));
        assert_eq!(control.load_status(), AdmissionSnapshot { requests: 0, bytes: 0, waiting: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_loses_no_permit() {
        let control = control(1, 4);
        let first = control.acquire(&account("a"), 0, WAIT).await.0.unwrap();
        let account = account("b");
        {
            let waiter = control.acquire(&account, 0, WAIT);
            tokio::pin!(waiter);
            assert!(timeout(Duration::from_millis(1), waiter.as_mut()).await.is_err());
            // The permit is sent, but the waiting request never receives it.
            drop(first);
            assert_eq!(control.load_status().requests, 1);
        }
        assert_eq!(control.load_status(), AdmissionSnapshot { requests: 0, bytes: 0, waiting: 0 });
    }
}
