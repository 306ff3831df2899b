//! Concurrency limit of a provider: permits for interactive requests and batch work, and queues of waiters.
//!
//! An interactive request acquires a permit in one atomic operation if a permit is free. Batch work leaves a fifth of
//! the permits free for interactive requests. Batch work without a permit waits in a queue, round-robin by account, and
//! gets a permit when one is released: waiters do not poll, and one permit wakes one waiter. An interactive request
//! without a permit asks the youngest batch line to release its permit, and is served before all batch work. If no
//! batch line holds a permit, the request may wait for a limited time, round-robin by account. Without a configured
//! limit, only the number of batch lines is limited.

#[cfg(test)]
mod tests;

use parking_lot::{Mutex, MutexGuard};
use penstock_limits::{EnqueueOutcome, FairQueue};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Divisor of the limit: batch work leaves one fifth of the permits to interactive requests.
const BATCH_FREE_DIVISOR: u32 = 5;

/// Value of `limit` without a configured limit.
const NO_LIMIT: u32 = u32::MAX;

/// Concurrency limit of one provider.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// Number of permits; [`NO_LIMIT`] without a configured limit.
    limit: AtomicU32,
    /// Maximum number of batch lines if no limit is configured.
    max_lines: AtomicUsize,
    in_flight: AtomicU32,
    /// Number of waiters: interactive requests and batch work. It is changed only while `queues` is locked.
    waiting_count: AtomicU32,
    queues: Mutex<WaitQueues>,
}

#[derive(Debug, Default)]
struct WaitQueues {
    /// Interactive requests, round-robin by account.
    interactive: FairQueue<oneshot::Sender<ConcurrencyPermit>>,
    /// Batch work, round-robin by account.
    batch: FairQueue<BatchWaiter>,
    /// Batch lines that hold a permit, the youngest last. The signal of a line is removed when the line is asked to
    /// release its permit.
    batch_lines: Vec<(u64, Option<CancellationToken>)>,
    /// Number of the last batch line that got a permit.
    number: u64,
}

/// Waiting batch work: a batch line, with the signal that asks it to release its permit, or another request of batch
/// work.
#[derive(Debug)]
struct BatchWaiter {
    line: Option<CancellationToken>,
    sender: oneshot::Sender<ConcurrencyPermit>,
}

/// Channel to a waiter, and the permit that will be sent on it.
type GrantedPermit = (oneshot::Sender<ConcurrencyPermit>, ConcurrencyPermit);

/// Permit for one request or batch line; released on drop.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    concurrency: Arc<ConcurrencyLimit>,
    /// Number of the batch line that holds the permit; `None` if no batch line holds it.
    line: Option<u64>,
}

/// Handle of a waiter in a queue; dropping it removes the waiter from the queue.
#[derive(Debug)]
pub struct PermitWaiter {
    concurrency: Arc<ConcurrencyLimit>,
    queue: WaiterClass,
    /// Account of the waiting request.
    account: Arc<str>,
    number: u64,
    receiver: oneshot::Receiver<ConcurrencyPermit>,
}

/// Class of a waiter, which selects its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaiterClass {
    /// Interactive requests of clients.
    Interactive,
    /// Lines of batches and other batch work.
    Batch,
}

/// Outcome of acquiring a permit for batch work.
pub enum AcquireOutcome {
    /// A permit was free.
    Acquired(ConcurrencyPermit),
    /// No permit was free, and the work waits in the queue.
    Queued(PermitWaiter),
}

impl ConcurrencyLimit {
    /// Creates a limit with all permits free. Without a configured `limit`, `max_lines` limits the number of concurrent
    /// batch lines.
    #[must_use]
    pub fn new(limit: Option<u32>, max_lines: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU32::new(limit.unwrap_or(NO_LIMIT)),
            max_lines: AtomicUsize::new(max_lines.max(1)),
            in_flight: AtomicU32::new(0),
            waiting_count: AtomicU32::new(0),
            queues: Mutex::default(),
        })
    }

    /// Applies a new configuration. Permits that are held stay valid, and additional permits go to waiters.
    pub fn configure(self: &Arc<Self>, limit: Option<u32>, max_lines: usize) {
        self.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::SeqCst);
        self.max_lines.store(max_lines.max(1), Ordering::SeqCst);
        let granted = self.grant_waiters(&mut self.queues.lock());
        send_permits(granted);
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
    }

    /// Returns the number of permits in use.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the number of waiters: interactive requests, and batch work.
    #[must_use]
    pub fn waiter_count(&self) -> u32 {
        self.waiting_count.load(Ordering::Relaxed)
    }

    /// Acquires a permit for an interactive request, if one is free.
    #[must_use]
    pub fn try_acquire(self: &Arc<Self>) -> Option<ConcurrencyPermit> {
        self.try_increment(self.limit()).then(|| ConcurrencyPermit { concurrency: self.clone(), line: None })
    }

    /// Acquires a permit for batch work of this account, or queues the work. A batch line passes the signal by which it
    /// is asked to release its permit.
    #[must_use]
    pub fn acquire_or_queue(
        self: &Arc<Self>,
        account: &Arc<str>,
        line: Option<CancellationToken>,
    ) -> AcquireOutcome {
        let mut queues = self.queues.lock();
        // Without a configured limit, only batch lines may have to wait.
        let passes = line.is_none() && self.limit().is_none();
        if (queues.batch.is_empty() || passes) && self.try_increment_for_batch(&queues, line.is_some()) {
            return AcquireOutcome::Acquired(self.permit(&mut queues, line));
        }
        let (sender, receiver) = oneshot::channel();
        let number = match queues.batch.enqueue(account, BatchWaiter { line, sender }, usize::MAX) {
            EnqueueOutcome::Waiting(number, _) => number,
            // A queue without a maximum length is never full. If it were, the wait with this number would end at once.
            EnqueueOutcome::Full => 0,
        };
        self.grant_after_enqueue(queues);
        let account = account.clone();
        AcquireOutcome::Queued(PermitWaiter {
            concurrency: self.clone(),
            queue: WaiterClass::Batch,
            account,
            number,
            receiver,
        })
    }

    /// Asks the youngest batch line that was not asked before to release its permit, and queues an interactive request
    /// of this account before all batch work; `None` if there is no line to ask.
    #[must_use]
    pub fn preempt_batch_line(self: &Arc<Self>, account: &Arc<str>) -> Option<PermitWaiter> {
        let mut queues = self.queues.lock();
        let youngest = queues.batch_lines.iter_mut().rev().find_map(|(_, signal)| signal.take())?;
        let waiter = self.push_waiter(queues, account, usize::MAX);
        youngest.cancel();
        waiter
    }

    /// Queues an interactive request of this account before all batch work. If the queue already has `max_waiting`
    /// requests, the newest request of the account with the most queued requests is evicted; returns `None` if no
    /// other account has at least two more queued requests than this one.
    #[must_use]
    pub fn enqueue(self: &Arc<Self>, account: &Arc<str>, max_waiting: usize) -> Option<PermitWaiter> {
        self.push_waiter(self.queues.lock(), account, max_waiting)
    }

    fn push_waiter(
        self: &Arc<Self>,
        mut queues: MutexGuard<'_, WaitQueues>,
        account: &Arc<str>,
        max_waiting: usize,
    ) -> Option<PermitWaiter> {
        let (sender, receiver) = oneshot::channel();
        match queues.interactive.enqueue(account, sender, max_waiting) {
            EnqueueOutcome::Full => None,
            EnqueueOutcome::Waiting(number, gone) => {
                self.waiting_count.fetch_sub(u32::from(gone.is_some()), Ordering::SeqCst);
                self.grant_after_enqueue(queues);
                drop(gone);
                let account = account.clone();
                Some(PermitWaiter {
                    concurrency: self.clone(),
                    queue: WaiterClass::Interactive,
                    account,
                    number,
                    receiver,
                })
            }
        }
    }

    fn try_increment(&self, limit: Option<u32>) -> bool {
        let increment = |in_use: u32| limit.is_none_or(|limit| in_use < limit).then_some(in_use + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::Relaxed, increment).is_ok()
    }

    fn try_increment_for_batch(&self, queues: &WaitQueues, line: bool) -> bool {
        match self.limit() {
            Some(concurrency) => {
                let max_waiting = (concurrency - concurrency / BATCH_FREE_DIVISOR).max(1);
                // Permits for which interactive requests are waiting count as taken, so batch work does not get them.
                let interactive = u32::try_from(queues.interactive.len()).unwrap_or(u32::MAX);
                max_waiting > interactive && self.try_increment(Some(max_waiting - interactive))
            }
            None => {
                (!line || queues.batch_lines.len() < self.max_lines.load(Ordering::Relaxed))
                    && self.try_increment(None)
            }
        }
    }

    /// Creates a permit for batch work that was counted in `in_flight`, and registers its line.
    fn permit(
        self: &Arc<Self>,
        queues: &mut WaitQueues,
        line: Option<CancellationToken>,
    ) -> ConcurrencyPermit {
        let line = line.map(|signal| {
            let number = queues.next_number();
            queues.batch_lines.push((number, Some(signal)));
            number
        });
        ConcurrencyPermit { concurrency: self.clone(), line }
    }

    /// Counts a new waiter, and grants permits that became free while the waiter was being queued.
    fn grant_after_enqueue(self: &Arc<Self>, mut queues: MutexGuard<'_, WaitQueues>) {
        self.waiting_count.fetch_add(1, Ordering::SeqCst);
        let granted = self.grant_waiters(&mut queues);
        drop(queues);
        send_permits(granted);
    }

    /// Assigns free permits to waiters and returns them. The caller has to send them after it has released the lock.
    fn grant_waiters(self: &Arc<Self>, queues: &mut WaitQueues) -> Vec<GrantedPermit> {
        let mut granted = Vec::new();
        while !queues.interactive.is_empty() && self.try_increment(self.limit()) {
            let Some(sender) = queues.interactive.pop_first_match(|_, _| true) else { break };
            granted.push((sender, ConcurrencyPermit { concurrency: self.clone(), line: None }));
        }
        while let Some(waiter) = self.next_batch_waiter(queues) {
            let permit = self.permit(queues, waiter.line);
            granted.push((waiter.sender, permit));
        }
        self.waiting_count.fetch_sub(u32::try_from(granted.len()).unwrap_or(0), Ordering::SeqCst);
        granted
    }

    /// Counts a permit for the next batch waiter, and removes and returns this waiter; `None` if no permit is free
    /// for it.
    fn next_batch_waiter(&self, queues: &mut WaitQueues) -> Option<BatchWaiter> {
        if queues.batch.is_empty() {
            return None;
        }
        if self.limit().is_some() {
            // With a configured limit, the same permits are free for all batch waiters, so the first waiter is taken.
            return if self.try_increment_for_batch(queues, false) {
                queues.batch.pop_first_match(|_, _| true)
            } else {
                None
            };
        }
        let line_allowed = queues.batch_lines.len() < self.max_lines.load(Ordering::Relaxed);
        queues
            .batch
            .pop_first_match(|_, waiter| (waiter.line.is_none() || line_allowed) && self.try_increment(None))
    }

    /// Releases a permit, and grants it to the next waiter.
    fn release(self: &Arc<Self>, line: Option<u64>) {
        if line.is_none() && self.waiting_count.load(Ordering::SeqCst) == 0 {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            if self.waiting_count.load(Ordering::SeqCst) == 0 {
                return;
            }
            let granted = self.grant_waiters(&mut self.queues.lock());
            return send_permits(granted);
        }
        let mut queues = self.queues.lock();
        if let Some(number) = line
            && let Ok(at) = queues.batch_lines.binary_search_by_key(&number, |(number, _)| *number)
        {
            queues.batch_lines.remove(at);
        }
        let mut granted = Vec::new();
        let fits = self.limit().is_none_or(|limit| self.in_flight() <= limit);
        if fits && let Some(sender) = queues.interactive.pop_first_match(|_, _| true) {
            // The permit is passed directly to the waiter. It is not released in between, so no other request can
            // take it first.
            self.waiting_count.fetch_sub(1, Ordering::SeqCst);
            granted.push((sender, ConcurrencyPermit { concurrency: self.clone(), line: None }));
        } else {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            granted = self.grant_waiters(&mut queues);
        }
        drop(queues);
        send_permits(granted);
    }

    fn remove_waiter(&self, queue: WaiterClass, account: &Arc<str>, number: u64) {
        let mut queues = self.queues.lock();
        let waited = match queue {
            WaiterClass::Interactive => queues.interactive.remove(account, number).is_some(),
            WaiterClass::Batch => queues.batch.remove(account, number).is_some(),
        };
        self.waiting_count.fetch_sub(u32::from(waited), Ordering::SeqCst);
    }
}

impl WaitQueues {
    const fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// Sends permits to their waiters. If a waiter no longer exists, its permit is released at once.
fn send_permits(granted: Vec<GrantedPermit>) {
    for (sender, permit) in granted {
        sender.send(permit).ok();
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.concurrency.release(self.line);
    }
}

impl PermitWaiter {
    /// Waits for the permit; `None` if no permit will come. Cancel-safe.
    pub async fn acquire(&mut self) -> Option<ConcurrencyPermit> {
        (&mut self.receiver).await.ok()
    }

    /// Polls for the permit, for a task that waits for several.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConcurrencyPermit>> {
        Pin::new(&mut self.receiver).poll(cx).map(Result::ok)
    }
}

impl Drop for PermitWaiter {
    fn drop(&mut self) {
        self.concurrency.remove_waiter(self.queue, &self.account, self.number);
        // A permit that is sent from now on returns to its sender; a permit that was already sent is dropped with the
        // channel.
        self.receiver.close();
    }
}
