//! A provider's seats: who works there, who waits for one, who gives his up.
//!
//! A request at once takes a seat in one atomic step, or finds none. Batch work
//! leaves a fifth of the seats to others; what finds no seat waits in one queue,
//! in which accounts take turns, and is handed the seat of whoever leaves: nobody
//! polls, and one seat wakes one waiter. A request at once that finds no seat
//! asks the youngest line of a batch to leave, and is handed a seat before all
//! others. Where there is no line it may wait a moment, accounts in turn. Where
//! no number of seats is known, lines alone are bounded.

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

/// Share of the seats, in fifths, that batch work leaves to others.
const BATCH_FREE_SHARE: u32 = 5;

/// A number of seats that nothing reaches.
const NO_LIMIT: u32 = u32::MAX;

/// The seats of one provider.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// Number of permits; [`UNKNOWN`] without a configured limit.
    limit: AtomicU32,
    /// Most lines of batches where it is not known.
    lines: AtomicUsize,
    in_flight: AtomicU32,
    /// Number of waiting requests, changed under the lock only.
    waiting: AtomicU32,
    queues: Mutex<WaitQueues>,
}

#[derive(Debug, Default)]
struct WaitQueues {
    /// Requests at once, accounts in turn.
    urgent: FairQueue<oneshot::Sender<ConcurrencyPermit>>,
    /// Batch work, accounts in turn.
    patient: FairQueue<BatchWaiter>,
    /// Lines that have a seat, the youngest last; without a signal once they were asked to leave.
    seated: Vec<(u64, Option<CancellationToken>)>,
    /// The last number given to a line.
    number: u64,
}

/// Batch work that waits: a line with its signal, or a request.
#[derive(Debug)]
struct BatchWaiter {
    line: Option<CancellationToken>,
    hand: oneshot::Sender<ConcurrencyPermit>,
}

/// A seat on its way to who waited for it.
type GrantedPermit = (oneshot::Sender<ConcurrencyPermit>, ConcurrencyPermit);

/// A seat that is taken, until this is dropped.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    concurrency: Arc<ConcurrencyLimit>,
    /// The number of the line that has it.
    line: Option<u64>,
}

/// A turn in the queue, given up when this is dropped.
#[derive(Debug)]
pub struct PermitWaiter {
    concurrency: Arc<ConcurrencyLimit>,
    queue: WaiterClass,
    /// The account.
    account: Arc<str>,
    number: u64,
    hand: oneshot::Receiver<ConcurrencyPermit>,
}

/// The queues of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaiterClass {
    /// Requests at once.
    Urgent,
    /// Batch work.
    Patient,
}

/// Outcome of a request for a permit by batch work.
pub enum AcquireOutcome {
    /// A seat.
    Place(ConcurrencyPermit),
    /// A turn.
    Turn(PermitWaiter),
}

impl ConcurrencyLimit {
    /// So many seats, all free; `lines` bounds lines of batches where there is no limit.
    #[must_use]
    pub fn new(limit: Option<u32>, lines: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU32::new(limit.unwrap_or(NO_LIMIT)),
            lines: AtomicUsize::new(lines.max(1)),
            in_flight: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            queues: Mutex::default(),
        })
    }

    /// Another configuration says how many there are: whoever has one keeps it, and whom new ones are for gets them.
    pub fn configure(self: &Arc<Self>, limit: Option<u32>, lines: usize) {
        self.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::SeqCst);
        self.lines.store(lines.max(1), Ordering::SeqCst);
        let handed = self.grant_waiters(&mut self.queues.lock());
        send_permits(handed);
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != NO_LIMIT)
    }

    /// Seats that are taken.
    #[must_use]
    pub fn working(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A seat for a request at once, if one is free.
    #[must_use]
    pub fn try_acquire(self: &Arc<Self>) -> Option<ConcurrencyPermit> {
        self.try_increment(self.limit()).then(|| ConcurrencyPermit { concurrency: self.clone(), line: None })
    }

    /// A seat for batch work of this account, or a turn in the queue, in which accounts take turns. A line gives the
    /// signal that tells it to leave.
    #[must_use]
    pub fn acquire_or_queue(
        self: &Arc<Self>,
        account: &Arc<str>,
        line: Option<CancellationToken>,
    ) -> AcquireOutcome {
        let mut queues = self.queues.lock();
        // Without a limit only lines have to wait.
        let passes = line.is_none() && self.limit().is_none();
        if (queues.patient.is_empty() || passes) && self.try_increment_for_batch(&queues, line.is_some()) {
            return AcquireOutcome::Place(self.permit(&mut queues, line));
        }
        let (hand, waiter) = oneshot::channel();
        let number = match queues.patient.join(account, BatchWaiter { line, hand }, usize::MAX) {
            EnqueueOutcome::Waiting(number, _) => number,
            // A queue without a bound is never full; its turn would end at once.
            EnqueueOutcome::Full => 0,
        };
        self.preempt_batch_line(queues);
        let account = account.clone();
        AcquireOutcome::Turn(PermitWaiter {
            concurrency: self.clone(),
            queue: WaiterClass::Patient,
            account,
            number,
            hand: waiter,
        })
    }

    /// A turn before all batch work for a request at once, the youngest line here having been asked to leave;
    /// `None` if there is no line to ask.
    #[must_use]
    pub fn enqueue_retry(self: &Arc<Self>, account: &Arc<str>) -> Option<PermitWaiter> {
        let mut queues = self.queues.lock();
        let youngest = queues.seated.iter_mut().rev().find_map(|(_, signal)| signal.take())?;
        let waiter = self.push_waiter(queues, account, usize::MAX);
        youngest.cancel();
        waiter
    }

    /// A turn before all batch work for a request at once of this account, which takes turns with others; `None`
    /// where `max_waiting` wait already.
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
        let (hand, waiter) = oneshot::channel();
        match queues.urgent.join(account, hand, max_waiting) {
            EnqueueOutcome::Full => None,
            EnqueueOutcome::Waiting(number, gone) => {
                self.waiting.fetch_sub(u32::from(gone.is_some()), Ordering::SeqCst);
                self.preempt_batch_line(queues);
                drop(gone);
                let account = account.clone();
                Some(PermitWaiter {
                    concurrency: self.clone(),
                    queue: WaiterClass::Urgent,
                    account,
                    number,
                    hand: waiter,
                })
            }
        }
    }

    fn try_increment(&self, limit: Option<u32>) -> bool {
        let room = |working: u32| limit.is_none_or(|limit| working < limit).then_some(working + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::Relaxed, room).is_ok()
    }

    fn try_increment_for_batch(&self, queues: &WaitQueues, line: bool) -> bool {
        match self.limit() {
            Some(concurrency) => {
                let max_waiting = (concurrency - concurrency / BATCH_FREE_SHARE).max(1);
                // A seat that somebody urgent waits for is taken already.
                let urgent = u32::try_from(queues.urgent.len()).unwrap_or(u32::MAX);
                max_waiting > urgent && self.try_increment(Some(max_waiting - urgent))
            }
            None => {
                (!line || queues.seated.len() < self.lines.load(Ordering::Relaxed))
                    && self.try_increment(None)
            }
        }
    }

    /// The place of a claim.
    fn permit(
        self: &Arc<Self>,
        queues: &mut WaitQueues,
        line: Option<CancellationToken>,
    ) -> ConcurrencyPermit {
        let line = line.map(|signal| {
            let number = queues.next_number();
            queues.seated.push((number, Some(signal)));
            number
        });
        ConcurrencyPermit { concurrency: self.clone(), line }
    }

    /// Hands on a permit that became free while a request began to wait.
    fn preempt_batch_line(self: &Arc<Self>, mut queues: MutexGuard<'_, WaitQueues>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let handed = self.grant_waiters(&mut queues);
        drop(queues);
        send_permits(handed);
    }

    /// Gives free seats to those who wait. They are told when the lock is gone.
    fn grant_waiters(self: &Arc<Self>, queues: &mut WaitQueues) -> Vec<GrantedPermit> {
        let mut handed = Vec::new();
        while !queues.urgent.is_empty() && self.try_increment(self.limit()) {
            let Some(hand) = queues.urgent.pop_if(|_, _| true) else { break };
            handed.push((hand, ConcurrencyPermit { concurrency: self.clone(), line: None }));
        }
        while let Some(waiter) = self.next_batch_waiter(queues) {
            let permit = self.permit(queues, waiter.line);
            handed.push((waiter.hand, permit));
        }
        self.waiting.fetch_sub(u32::try_from(handed.len()).unwrap_or(0), Ordering::SeqCst);
        handed
    }

    /// Batch work that is next, with a seat claimed for it.
    fn next_batch_waiter(&self, queues: &mut WaitQueues) -> Option<BatchWaiter> {
        if queues.patient.is_empty() {
            return None;
        }
        if self.limit().is_some() {
            // A seat is free for everybody or for nobody: the accounts need not be searched.
            return if self.try_increment_for_batch(queues, false) {
                queues.patient.pop_if(|_, _| true)
            } else {
                None
            };
        }
        let room = queues.seated.len() < self.lines.load(Ordering::Relaxed);
        queues.patient.pop_if(|_, waiter| (waiter.line.is_none() || room) && self.try_increment(None))
    }

    /// A seat is given back.
    fn release(self: &Arc<Self>, line: Option<u64>) {
        if line.is_none() && self.waiting.load(Ordering::SeqCst) == 0 {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            let handed = self.grant_waiters(&mut self.queues.lock());
            return send_permits(handed);
        }
        let mut queues = self.queues.lock();
        if let Some(number) = line
            && let Ok(at) = queues.seated.binary_search_by_key(&number, |(number, _)| *number)
        {
            queues.seated.remove(at);
        }
        let mut handed = Vec::new();
        let fits = self.limit().is_none_or(|limit| self.working() <= limit);
        if fits && let Some(hand) = queues.urgent.pop_if(|_, _| true) {
            // Without being free in between, when another could take it.
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            handed.push((hand, ConcurrencyPermit { concurrency: self.clone(), line: None }));
        } else {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            handed = self.grant_waiters(&mut queues);
        }
        drop(queues);
        send_permits(handed);
    }

    fn remove_waiter(&self, queue: WaiterClass, account: &Arc<str>, number: u64) {
        let mut queues = self.queues.lock();
        let waited = match queue {
            WaiterClass::Urgent => queues.urgent.remove(account, number).is_some(),
            WaiterClass::Patient => queues.patient.remove(account, number).is_some(),
        };
        self.waiting.fetch_sub(u32::from(waited), Ordering::SeqCst);
    }
}

impl WaitQueues {
    const fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// A waiter that has gone meanwhile gives its seat back at once.
fn send_permits(handed: Vec<GrantedPermit>) {
    for (hand, permit) in handed {
        hand.send(permit).ok();
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.concurrency.release(self.line);
    }
}

impl PermitWaiter {
    /// Waits for the seat, `None` if it will not come; may be asked again after it was not waited for to the end.
    pub async fn acquire(&mut self) -> Option<ConcurrencyPermit> {
        (&mut self.hand).await.ok()
    }

    /// The same for who waits for several.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConcurrencyPermit>> {
        Pin::new(&mut self.hand).poll(cx).map(Result::ok)
    }
}

impl Drop for PermitWaiter {
    fn drop(&mut self) {
        self.concurrency.remove_waiter(self.queue, &self.account, self.number);
        // A seat that is handed over from here on finds nobody; one that was is dropped with the channel.
        self.hand.close();
    }
}
