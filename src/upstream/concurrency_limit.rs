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
const BATCH_LEAVES: u32 = 5;

/// A number of seats that nothing reaches.
const UNKNOWN: u32 = u32::MAX;

/// The seats of one provider.
#[derive(Debug)]
pub struct Seats {
    /// Number of permits; [`UNKNOWN`] without a configured limit.
    limit: AtomicU32,
    /// Most lines of batches where it is not known.
    lines: AtomicUsize,
    working: AtomicU32,
    /// Number of waiting requests, changed under the lock only.
    waiting: AtomicU32,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    /// Requests at once, accounts in turn.
    urgent: FairQueue<oneshot::Sender<Place>>,
    /// Batch work, accounts in turn.
    patient: FairQueue<Waiter>,
    /// Lines that have a seat, the youngest last; without a signal once they were asked to leave.
    seated: Vec<(u64, Option<CancellationToken>)>,
    /// The last number given to a line.
    number: u64,
}

/// Batch work that waits: a line with its signal, or a request.
#[derive(Debug)]
struct Waiter {
    line: Option<CancellationToken>,
    hand: oneshot::Sender<Place>,
}

/// A seat on its way to who waited for it.
type Handed = (oneshot::Sender<Place>, Place);

/// A seat that is taken, until this is dropped.
#[derive(Debug)]
pub struct Place {
    seats: Arc<Seats>,
    /// The number of the line that has it.
    line: Option<u64>,
}

/// A turn in the queue, given up when this is dropped.
#[derive(Debug)]
pub struct Turn {
    seats: Arc<Seats>,
    queue: Queue,
    /// The account.
    whose: Arc<str>,
    number: u64,
    hand: oneshot::Receiver<Place>,
}

/// The queues of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Requests at once.
    Urgent,
    /// Batch work.
    Patient,
}

/// Outcome of a request for a permit by batch work.
pub enum Queued {
    /// A seat.
    Place(Place),
    /// A turn.
    Turn(Turn),
}

impl Seats {
    /// So many seats, all free; `lines` bounds lines of batches where there is no limit.
    #[must_use]
    pub fn new(limit: Option<u32>, lines: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU32::new(limit.unwrap_or(UNKNOWN)),
            lines: AtomicUsize::new(lines.max(1)),
            working: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            desk: Mutex::default(),
        })
    }

    /// Another configuration says how many there are: whoever has one keeps it, and whom new ones are for gets them.
    pub fn configure(self: &Arc<Self>, limit: Option<u32>, lines: usize) {
        self.limit.store(limit.unwrap_or(UNKNOWN), Ordering::SeqCst);
        self.lines.store(lines.max(1), Ordering::SeqCst);
        let handed = self.serve(&mut self.desk.lock());
        hand_over(handed);
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit != UNKNOWN)
    }

    /// Seats that are taken.
    #[must_use]
    pub fn working(&self) -> u32 {
        self.working.load(Ordering::Relaxed)
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A seat for a request at once, if one is free.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        self.claim(self.limit()).then(|| Place { seats: self.clone(), line: None })
    }

    /// A seat for batch work of this account, or a turn in the queue, in which accounts take turns. A line gives the
    /// signal that tells it to leave.
    #[must_use]
    pub fn queue(self: &Arc<Self>, whose: &Arc<str>, line: Option<CancellationToken>) -> Queued {
        let mut desk = self.desk.lock();
        // Without a limit only lines have to wait.
        let passes = line.is_none() && self.limit().is_none();
        if (desk.patient.is_empty() || passes) && self.claim_for_batch(&desk, line.is_some()) {
            return Queued::Place(self.place(&mut desk, line));
        }
        let (hand, turn) = oneshot::channel();
        let number = match desk.patient.join(whose, Waiter { line, hand }, usize::MAX) {
            EnqueueOutcome::Waiting(number, _) => number,
            // A queue without a bound is never full; its turn would end at once.
            EnqueueOutcome::Full => 0,
        };
        self.waits(desk);
        let whose = whose.clone();
        Queued::Turn(Turn { seats: self.clone(), queue: Queue::Patient, whose, number, hand: turn })
    }

    /// A turn before all batch work for a request at once, the youngest line here having been asked to leave;
    /// `None` if there is no line to ask.
    #[must_use]
    pub fn ask_back(self: &Arc<Self>, whose: &Arc<str>) -> Option<Turn> {
        let mut desk = self.desk.lock();
        let youngest = desk.seated.iter_mut().rev().find_map(|(_, signal)| signal.take())?;
        let turn = self.join(desk, whose, usize::MAX);
        youngest.cancel();
        turn
    }

    /// A turn before all batch work for a request at once of this account, which takes turns with others; `None`
    /// where `most` wait already.
    #[must_use]
    pub fn wait(self: &Arc<Self>, whose: &Arc<str>, most: usize) -> Option<Turn> {
        self.join(self.desk.lock(), whose, most)
    }

    fn join(self: &Arc<Self>, mut desk: MutexGuard<'_, Desk>, whose: &Arc<str>, most: usize) -> Option<Turn> {
        let (hand, turn) = oneshot::channel();
        match desk.urgent.join(whose, hand, most) {
            EnqueueOutcome::Full => None,
            EnqueueOutcome::Waiting(number, gone) => {
                self.waiting.fetch_sub(u32::from(gone.is_some()), Ordering::SeqCst);
                self.waits(desk);
                drop(gone);
                let whose = whose.clone();
                Some(Turn { seats: self.clone(), queue: Queue::Urgent, whose, number, hand: turn })
            }
        }
    }

    fn claim(&self, limit: Option<u32>) -> bool {
        let room = |working: u32| limit.is_none_or(|limit| working < limit).then_some(working + 1);
        self.working.fetch_update(Ordering::SeqCst, Ordering::Relaxed, room).is_ok()
    }

    fn claim_for_batch(&self, desk: &Desk, line: bool) -> bool {
        match self.limit() {
            Some(seats) => {
                let most = (seats - seats / BATCH_LEAVES).max(1);
                // A seat that somebody urgent waits for is taken already.
                let urgent = u32::try_from(desk.urgent.len()).unwrap_or(u32::MAX);
                most > urgent && self.claim(Some(most - urgent))
            }
            None => (!line || desk.seated.len() < self.lines.load(Ordering::Relaxed)) && self.claim(None),
        }
    }

    /// The place of a claim.
    fn place(self: &Arc<Self>, desk: &mut Desk, line: Option<CancellationToken>) -> Place {
        let line = line.map(|signal| {
            let number = desk.next();
            desk.seated.push((number, Some(signal)));
            number
        });
        Place { seats: self.clone(), line }
    }

    /// Hands on a permit that became free while a request began to wait.
    fn waits(self: &Arc<Self>, mut desk: MutexGuard<'_, Desk>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let handed = self.serve(&mut desk);
        drop(desk);
        hand_over(handed);
    }

    /// Gives free seats to those who wait. They are told when the lock is gone.
    fn serve(self: &Arc<Self>, desk: &mut Desk) -> Vec<Handed> {
        let mut handed = Vec::new();
        while !desk.urgent.is_empty() && self.claim(self.limit()) {
            let Some(hand) = desk.urgent.pop_if(|_, _| true) else { break };
            handed.push((hand, Place { seats: self.clone(), line: None }));
        }
        while let Some(waiter) = self.next_patient(desk) {
            let place = self.place(desk, waiter.line);
            handed.push((waiter.hand, place));
        }
        self.waiting.fetch_sub(u32::try_from(handed.len()).unwrap_or(0), Ordering::SeqCst);
        handed
    }

    /// Batch work that is next, with a seat claimed for it.
    fn next_patient(&self, desk: &mut Desk) -> Option<Waiter> {
        if desk.patient.is_empty() {
            return None;
        }
        if self.limit().is_some() {
            // A seat is free for everybody or for nobody: the accounts need not be searched.
            return if self.claim_for_batch(desk, false) { desk.patient.pop_if(|_, _| true) } else { None };
        }
        let room = desk.seated.len() < self.lines.load(Ordering::Relaxed);
        desk.patient.pop_if(|_, waiter| (waiter.line.is_none() || room) && self.claim(None))
    }

    /// A seat is given back.
    fn leave(self: &Arc<Self>, line: Option<u64>) {
        if line.is_none() && self.waiting.load(Ordering::SeqCst) == 0 {
            self.working.fetch_sub(1, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            let handed = self.serve(&mut self.desk.lock());
            return hand_over(handed);
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
            handed.push((hand, Place { seats: self.clone(), line: None }));
        } else {
            self.working.fetch_sub(1, Ordering::SeqCst);
            handed = self.serve(&mut desk);
        }
        drop(desk);
        hand_over(handed);
    }

    fn forget(&self, queue: Queue, whose: &Arc<str>, number: u64) {
        let mut desk = self.desk.lock();
        let waited = match queue {
            Queue::Urgent => desk.urgent.remove(whose, number).is_some(),
            Queue::Patient => desk.patient.remove(whose, number).is_some(),
        };
        self.waiting.fetch_sub(u32::from(waited), Ordering::SeqCst);
    }
}

impl Desk {
    const fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// A waiter that has gone meanwhile gives its seat back at once.
fn hand_over(handed: Vec<Handed>) {
    for (hand, place) in handed {
        hand.send(place).ok();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.seats.leave(self.line);
    }
}

impl Turn {
    /// Waits for the seat, `None` if it will not come; may be asked again after it was not waited for to the end.
    pub async fn come(&mut self) -> Option<Place> {
        (&mut self.hand).await.ok()
    }

    /// The same for who waits for several.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Place>> {
        Pin::new(&mut self.hand).poll(cx).map(Result::ok)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.seats.forget(self.queue, &self.whose, self.number);
        // A seat that is handed over from here on finds nobody; one that was is dropped with the channel.
        self.hand.close();
    }
}
