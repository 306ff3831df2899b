//! Permits to count the tokens of long prompts: limits concurrent counts, and allows one per account.
//!
//! Requests wait in turns by account, lines of batches behind all requests. A released permit goes to the next waiting
//! request whose account has none.

use crate::limits::admission_control::Why;
use parking_lot::Mutex;
use penstock_limits::{Fair, Joined};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Permits of the process.
#[derive(Debug)]
pub struct CountingPermits(Mutex<Desk>);

#[derive(Debug)]
struct Desk {
    /// Maximum number of concurrent counts.
    limit: usize,
    /// Accounts that hold a permit.
    counting: Vec<Arc<str>>,
    requests: Fair<oneshot::Sender<CountingPermit>>,
    lines: VecDeque<Line>,
    /// Number of the last line that queued.
    number: u64,
}

/// Waiting line of a batch.
#[derive(Debug)]
struct Line {
    number: u64,
    account: Arc<str>,
    hand: oneshot::Sender<CountingPermit>,
}

/// Permit to count, released when dropped.
#[derive(Debug)]
pub struct CountingPermit {
    permits: Arc<CountingPermits>,
    account: Arc<str>,
}

/// Position in the queue, released when dropped.
struct Waiting<'p> {
    permits: &'p Arc<CountingPermits>,
    account: &'p Arc<str>,
    number: u64,
    /// True for a line of a batch.
    line: bool,
    hand: oneshot::Receiver<CountingPermit>,
}

/// Permits to be delivered to waiting requests.
type Handed = Vec<(oneshot::Sender<CountingPermit>, CountingPermit)>;

impl CountingPermits {
    /// Creates `limit` permits.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Desk {
            limit,
            counting: Vec::new(),
            requests: Fair::default(),
            lines: VecDeque::new(),
            number: 0,
        })))
    }

    /// Changes the number of permits; running counts go on.
    pub fn configure(self: &Arc<Self>, limit: usize) {
        let handed = {
            let mut desk = self.0.lock();
            desk.limit = limit;
            self.serve(&mut desk)
        };
        hand_over(handed);
    }

    /// Returns the number of running counts, and of waiting ones.
    #[must_use]
    pub fn standing(&self) -> (usize, usize) {
        let desk = self.0.lock();
        (desk.counting.len(), desk.requests.len() + desk.lines.len())
    }

    /// Acquires a permit for this account, at once or after a wait of at most `wait` among at most `most` others. A
    /// line of a batch has no `wait`: it waits behind all requests, without a limit.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        account: &Arc<str>,
        most: usize,
        wait: Option<Duration>,
    ) -> Result<CountingPermit, Why> {
        let (hand, turn) = oneshot::channel();
        let mut waiting = {
            let mut desk = self.0.lock();
            if desk.may(account) {
                return Ok(self.permit(&mut desk, account.clone()));
            }
            let (number, gone) = match wait {
                None => (desk.queue(account.clone(), hand), None),
                Some(_) => match desk.requests.join(account, hand, most) {
                    Joined::Full => return Err(Why::Queue),
                    Joined::Waits(number, gone) => (number, gone),
                },
            };
            drop(desk);
            // Delivered after the lock is released.
            drop(gone);
            Waiting { permits: self, account, number, line: wait.is_none(), hand: turn }
        };
        match wait {
            None => (&mut waiting.hand).await.map_err(|_| Why::Queue),
            Some(wait) => match timeout(wait, &mut waiting.hand).await {
                Ok(permit) => permit.map_err(|_| Why::Queue),
                Err(_) => Err(Why::House),
            },
        }
    }

    fn permit(self: &Arc<Self>, desk: &mut Desk, account: Arc<str>) -> CountingPermit {
        desk.counting.push(account.clone());
        CountingPermit { permits: self.clone(), account }
    }

    /// Grants free permits to waiting requests.
    fn serve(self: &Arc<Self>, desk: &mut Desk) -> Handed {
        let mut handed = Vec::new();
        while desk.counting.len() < desk.limit {
            let Desk { counting, requests, lines, .. } = desk;
            let next = |whose: &Arc<str>| !counting.contains(whose);
            let mut account = None;
            let request = requests.take(|whose, _| {
                let may = next(whose);
                account = may.then(|| whose.clone());
                may
            });
            let (account, hand) = match (account, request) {
                (Some(account), Some(hand)) => (account, hand),
                _ => {
                    let Some(line) = lines.iter().position(|line| next(&line.account)) else { break };
                    let Some(line) = lines.remove(line) else { break };
                    (line.account, line.hand)
                }
            };
            handed.push((hand, self.permit(desk, account)));
        }
        handed
    }
}

impl Desk {
    /// Returns true if a new request of the account may count at once. Waiting requests could not, each because of its
    /// own account.
    fn may(&self, account: &Arc<str>) -> bool {
        self.counting.len() < self.limit && !self.counting.contains(account)
    }

    fn queue(&mut self, account: Arc<str>, hand: oneshot::Sender<CountingPermit>) -> u64 {
        self.number += 1;
        self.lines.push_back(Line { number: self.number, account, hand });
        self.number
    }
}

/// Delivers permits; a receiver that is gone releases its permit at once.
fn hand_over(handed: Handed) {
    for (hand, permit) in handed {
        hand.send(permit).ok();
    }
}

impl Drop for CountingPermit {
    fn drop(&mut self) {
        let handed = {
            let mut desk = self.permits.0.lock();
            if let Some(at) = desk.counting.iter().position(|account| *account == self.account) {
                desk.counting.swap_remove(at);
            }
            self.permits.serve(&mut desk)
        };
        hand_over(handed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut desk = self.permits.0.lock();
        if self.line {
            desk.lines.retain(|line| line.number != self.number);
        } else {
            desk.requests.leave(self.account, self.number);
        }
        drop(desk);
        // A permit that was granted is dropped with the channel; no further permit is granted.
        self.hand.close();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WAIT: Option<Duration> = Some(Duration::from_secs(2));

    fn account(name: &str) -> Arc<str> {
        name.into()
    }

    /// Task that waits for a permit.
    fn wanted(
        permits: &Arc<CountingPermits>,
        whose: &str,
        wait: Option<Duration>,
    ) -> tokio::task::JoinHandle<Result<CountingPermit, Why>> {
        let (permits, whose) = (permits.clone(), account(whose));
        tokio::spawn(async move { permits.acquire(&whose, 100, wait).await })
    }

    async fn until_waiting(permits: &Arc<CountingPermits>, count: usize) {
        while permits.standing().1 != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn accounts_count_in_turn_and_who_leaves_delays_nobody() {
        let permits = CountingPermits::new(1);
        let first = permits.acquire(&account("busy"), 100, WAIT).await.unwrap();
        let left: Vec<_> = (0..10).map(|_| wanted(&permits, "busy", WAIT)).collect();
        let mut own: Vec<_> = (0..10).map(|_| wanted(&permits, "busy", WAIT)).collect();
        until_waiting(&permits, 20).await;
        left.iter().for_each(tokio::task::JoinHandle::abort);
        until_waiting(&permits, 10).await;
        let theirs = wanted(&permits, "other", WAIT);
        until_waiting(&permits, 11).await;
        drop(first);
        drop(own.remove(0).await.unwrap().unwrap());
        let theirs = theirs.await.unwrap().unwrap();
        assert_eq!(permits.standing(), (1, 9), "one of its own was before it, not ten");
        // The count takes longer than they wait.
        for one in own {
            assert_eq!(one.await.unwrap().err(), Some(Why::House));
        }
        drop(theirs);
        assert_eq!(permits.standing(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_one_permit_however_many_are_free() {
        let permits = CountingPermits::new(3);
        let first = permits.acquire(&account("busy"), 100, WAIT).await.unwrap();
        let second = wanted(&permits, "busy", WAIT);
        let line = wanted(&permits, "busy", None);
        until_waiting(&permits, 2).await;
        let theirs = permits.acquire(&account("other"), 100, WAIT).await.unwrap();
        assert_eq!(permits.standing(), (2, 2), "two of three are taken");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(!line.is_finished(), "lines wait behind requests");
        drop(second);
        let line = line.await.unwrap().unwrap();
        drop((line, theirs));
        assert_eq!(permits.standing(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_has_an_end_and_a_permit_that_nobody_takes_goes_on() {
        let permits = CountingPermits::new(1);
        let first = permits.acquire(&account("a"), 100, WAIT).await.unwrap();
        assert_eq!(permits.acquire(&account("b"), 0, WAIT).await.err(), Some(Why::Queue));
        let (gone, line) = (wanted(&permits, "b", WAIT), wanted(&permits, "c", None));
        until_waiting(&permits, 2).await;
        drop(first);
        // Sent, and never received.
        gone.abort();
        drop(line.await.unwrap().unwrap());
        assert!(gone.await.is_err());
        assert_eq!(permits.standing(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn another_number_counts_at_once_and_takes_nothing_away() {
        let permits = CountingPermits::new(1);
        let first = permits.acquire(&account("a"), 100, WAIT).await.unwrap();
        let (second, third) = (wanted(&permits, "b", WAIT), wanted(&permits, "c", None));
        until_waiting(&permits, 2).await;
        permits.configure(3);
        let (second, third) = (second.await.unwrap().unwrap(), third.await.unwrap().unwrap());
        permits.configure(1);
        assert_eq!(permits.standing(), (3, 0));
        drop((first, second));
        assert_eq!(permits.acquire(&account("d"), 0, WAIT).await.err(), Some(Why::Queue), "one counts still");
        drop(third);
        assert!(permits.acquire(&account("d"), 0, WAIT).await.is_ok());
    }
}
