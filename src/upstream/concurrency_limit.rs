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
    desk: Mutex<WaitQueues>,
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
    seats: Arc<ConcurrencyLimit>,
    /// The number of the line that has it.
    line: Option<u64>,
}

/// A turn in the queue, given up when this is dropped.
#[derive(Debug)]
pub struct PermitWaiter {
    seats: Arc<ConcurrencyLimit>,
    queue: WaiterClass,
    /// The account.
    whose: Arc<str>,
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
            desk: Mutex::default(),
        })
    }

    /// Another configuration says how many there are: whoever has one keeps it, and whom new ones are for gets them.
    pub fn configure(self: &Arc<Self>, limit: Option<u32>, lines: usize) {
        self.limit.store(limit.unwrap_or(NO_LIMIT), Ordering::SeqCst);
        self.lines.store(lines.max(1), Ordering::SeqCst);
        let handed = self.grant_waiters(&mut self.desk.lock());
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
        self.try_increment(self.limit()).then(|| ConcurrencyPermit { seats: self.clone(), line: None })
    }

    /// A seat for batch work of this account, or a turn in the queue, in which accounts take turns. A line gives the
    /// signal that tells it to leave.
    #[must_use]
    pub fn acquire_or_queue(
        self: &Arc<Self>,
        whose: &Arc<str>,
        line: Option<CancellationToken>,
    ) -> AcquireOutcome {
        let mut desk = self.desk.lock();
        // Without a limit only lines have to wait.
        let passes = line.is_none() && self.limit().is_none();
        if (desk.patient.is_empty() || passes) && self.try_increment_for_batch(&desk, line.is_some()) {
            return AcquireOutcome::Place(self.permit(&mut desk, line));
        }
        let (hand, turn) = oneshot::channel();
        let number = match desk.patient.join(whose, BatchWaiter { line, hand }, usize::MAX) {
            EnqueueOutcome::Waiting(number, _) => number,
            // A queue without a bound is never full; its turn would end at once.
            EnqueueOutcome::Full => 0,
        };
        self.preempt_batch_line(desk);
        let whose = whose.clone();
        AcquireOutcome::Turn(PermitWaiter {
            seats: self.clone(),
            queue: WaiterClass::Patient,
            whose,
            number,
            hand: turn,
        })
    }

    /// A turn before all batch work for a request at once, the youngest line here having been asked to leave;
    /// `None` if there is no line to ask.
    #[must_use]
    pub fn enqueue_retry(self: &Arc<Self>, whose: &Arc<str>) -> Option<PermitWaiter> {
        let mut desk = self.desk.lock();
        let youngest = desk.seated.iter_mut().rev().find_map(|(_, signal)| signal.take())?;
        let turn = self.push_waiter(desk, whose, usize::MAX);
        youngest.cancel();
        turn
    }

    /// A turn before all batch work for a request at once of this account, which takes turns with others; `None`
    /// where `most` wait already.
    #[must_use]
    pub fn enqueue(self: &Arc<Self>, whose: &Arc<str>, most: usize) -> Option<PermitWaiter> {
        self.push_waiter(self.desk.lock(), whose, most)
    }

    fn push_waiter(
        self: &Arc<Self>,
        mut desk: MutexGuard<'_, WaitQueues>,
        whose: &Arc<str>,
        most: usize,
    ) -> Option<PermitWaiter> {
        let (hand, turn) = oneshot::channel();
        match desk.urgent.join(whose, hand, most) {
            EnqueueOutcome::Full => None,
            EnqueueOutcome::Waiting(number, gone) => {
                self.waiting.fetch_sub(u32::from(gone.is_some()), Ordering::SeqCst);
                self.preempt_batch_line(desk);
                drop(gone);
                let whose = whose.clone();
                Some(PermitWaiter {
                    seats: self.clone(),
                    queue: WaiterClass::Urgent,
                    whose,
                    number,
                    hand: turn,
                })
            }
        }
    }

    fn try_increment(&self, limit: Option<u32>) -> bool {
        let room = |working: u32| limit.is_none_or(|limit| working < limit).then_some(working + 1);
        self.in_flight.fetch_update(Ordering::SeqCst, Ordering::Relaxed, room).is_ok()
    }

    fn try_increment_for_batch(&self, desk: &WaitQueues, line: bool) -> bool {
        match self.limit() {
            Some(seats) => {
                let most = (seats - seats / BATCH_FREE_SHARE).max(1);
                // A seat that somebody urgent waits for is taken already.
                let urgent = u32::try_from(desk.urgent.len()).unwrap_or(u32::MAX);
                most > urgent && self.try_increment(Some(most - urgent))
            }
            None => {
                (!line || desk.seated.len() < self.lines.load(Ordering::Relaxed)) && self.try_increment(None)
            }
        }
    }

    /// The place of a claim.
    fn permit(self: &Arc<Self>, desk: &mut WaitQueues, line: Option<CancellationToken>) -> ConcurrencyPermit {
        let line = line.map(|signal| {
            let number = desk.next_number();
            desk.seated.push((number, Some(signal)));
            number
        });
        ConcurrencyPermit { seats: self.clone(), line }
    }

    /// Hands on a permit that became free while a request began to wait.
    fn preempt_batch_line(self: &Arc<Self>, mut desk: MutexGuard<'_, WaitQueues>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let handed = self.grant_waiters(&mut desk);
        drop(desk);
        send_permits(handed);
    }

    /// Gives free seats to those who wait. They are told when the lock is gone.
    fn grant_waiters(self: &Arc<Self>, desk: &mut WaitQueues) -> Vec<GrantedPermit> {
        let mut handed = Vec::new();
        while !desk.urgent.is_empty() && self.try_increment(self.limit()) {
            let Some(hand) = desk.urgent.pop_if(|_, _| true) else { break };
            handed.push((hand, ConcurrencyPermit { seats: self.clone(), line: None }));
        }
        while let Some(waiter) = self.next_batch_waiter(desk) {
            let place = self.permit(desk, waiter.line);
            handed.push((waiter.hand, place));
        }
        self.waiting.fetch_sub(u32::try_from(handed.len()).unwrap_or(0), Ordering::SeqCst);
        handed
    }

    /// Batch work that is next, with a seat claimed for it.
    fn next_batch_waiter(&self, desk: &mut WaitQueues) -> Option<BatchWaiter> {
        if desk.patient.is_empty() {
            return None;
        }
        if self.limit().is_some() {
            // A seat is free for everybody or for nobody: the accounts need not be searched.
            return if self.try_increment_for_batch(desk, false) {
                desk.patient.pop_if(|_, _| true)
            } else {
                None
            };
        }
        let room = desk.seated.len() < self.lines.load(Ordering::Relaxed);
        desk.patient.pop_if(|_, waiter| (waiter.line.is_none() || room) && self.try_increment(None))
    }

    /// A seat is given back.
    fn release(self: &Arc<Self>, line: Option<u64>) {
        if line.is_none() && self.waiting.load(Ordering::SeqCst) == 0 {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            let handed = self.grant_waiters(&mut self.desk.lock());
            return send_permits(handed);
        }
        let mut desk = self.desk.lock();
        if let Some(number) = line
            && let Ok(at) = desk.seated.binary_search_by_key(&number, |(number, _)| *number)
        {
            desk.seated.remove(at);
        }
        let mut handed = Vec::new();
        let fits = self.limit().is_none_or(|limit| self.working() <= limit);
        if fits && let Some(hand) = desk.urgent.pop_if(|_, _| true) {
            // Without being free in between, when another could take it.
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            handed.push((hand, ConcurrencyPermit { seats: self.clone(), line: None }));
        } else {
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
            handed = self.grant_waiters(&mut desk);
        }
        drop(desk);
        send_permits(handed);
    }

    fn remove_waiter(&self, queue: WaiterClass, whose: &Arc<str>, number: u64) {
        let mut desk = self.desk.lock();
        let waited = match queue {
            WaiterClass::Urgent => desk.urgent.remove(whose, number).is_some(),
            WaiterClass::Patient => desk.patient.remove(whose, number).is_some(),
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
    for (hand, place) in handed {
        hand.send(place).ok();
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.seats.release(self.line);
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
        self.seats.remove_waiter(self.queue, &self.whose, self.number);
        // A seat that is handed over from here on finds nobody; one that was is dropped with the channel.
        self.hand.close();
    }
}
