//! Permits to count the tokens of long prompts. They limit the number of concurrent counts; an account has one at most.
//!
//! Requests wait round-robin by account; lines of batches wait behind all requests. A released permit goes to the next
//! waiting request whose account has none.

use crate::limits::admission_control::ShedReason;
use parking_lot::Mutex;
use penstock_limits::{EnqueueOutcome, FairQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Permits of the process for counting the tokens of long prompts.
#[derive(Debug)]
pub struct TokenizerPermits(Mutex<PermitQueue>);

#[derive(Debug)]
struct PermitQueue {
    /// Maximum number of concurrent token counts.
    limit: usize,
    /// Accounts that hold a permit.
    holders: Vec<Arc<str>>,
    requests: FairQueue<oneshot::Sender<TokenizerPermit>>,
    lines: VecDeque<WaitingBatchLine>,
    /// Number of the last line that was queued.
    last_ticket: u64,
}

/// Batch line that waits for a permit.
#[derive(Debug)]
struct WaitingBatchLine {
    ticket: u64,
    account: Arc<str>,
    sender: oneshot::Sender<TokenizerPermit>,
}

/// Permit to count the tokens of a long prompt; released when dropped.
#[derive(Debug)]
pub struct TokenizerPermit {
    permits: Arc<TokenizerPermits>,
    account: Arc<str>,
}

/// Position in the queue, given up when dropped.
struct PermitWaiter<'p> {
    permits: &'p Arc<TokenizerPermits>,
    account: &'p Arc<str>,
    ticket: u64,
    /// True for a line of a batch.
    is_batch_line: bool,
    receiver: oneshot::Receiver<TokenizerPermit>,
}

/// Permits that were assigned to waiting requests and lines, with the channels by which they are delivered.
type GrantedPermits = Vec<(oneshot::Sender<TokenizerPermit>, TokenizerPermit)>;

impl TokenizerPermits {
    /// Creates the permits for at most `limit` concurrent token counts.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(PermitQueue {
            limit,
            holders: Vec::new(),
            requests: FairQueue::default(),
            lines: VecDeque::new(),
            last_ticket: 0,
        })))
    }

    /// Changes the number of permits; running counts continue.
    pub fn configure(self: &Arc<Self>, limit: usize) {
        let handed = {
            let mut queue = self.0.lock();
            queue.limit = limit;
            self.grant_free_permits(&mut queue)
        };
        send_permits(handed);
    }

    /// Returns the number of running counts, and of waiting ones.
    #[must_use]
    pub fn running_and_waiting_counts(&self) -> (usize, usize) {
        let queue = self.0.lock();
        (queue.holders.len(), queue.requests.len() + queue.lines.len())
    }

    /// Acquires a permit for this account, at once or after at most `max_wait`. If `max_waiting` other requests wait
    /// already, the request is refused, unless it displaces the waiting request of an account that has more of them. A
    /// line of a batch has no `max_wait`: it waits behind all requests, without a time limit.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        account: &Arc<str>,
        max_waiting: usize,
        max_wait: Option<Duration>,
    ) -> Result<TokenizerPermit, ShedReason> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = {
            let mut queue = self.0.lock();
            if queue.may_start(account) {
                return Ok(self.issue_permit(&mut queue, account.clone()));
            }
            let (number, gone) = match max_wait {
                None => (queue.enqueue_line(account.clone(), sender), None),
                Some(_) => match queue.requests.enqueue(account, sender, max_waiting) {
                    EnqueueOutcome::Full => return Err(ShedReason::QueueFull),
                    EnqueueOutcome::Waiting(number, gone) => (number, gone),
                },
            };
            drop(queue);
            // The displaced waiter is notified after the lock is released, by dropping its sender.
            drop(gone);
            PermitWaiter {
                permits: self,
                account,
                ticket: number,
                is_batch_line: max_wait.is_none(),
                receiver,
            }
        };
        match max_wait {
            None => (&mut waiting.receiver).await.map_err(|_| ShedReason::QueueFull),
            Some(max_wait) => match timeout(max_wait, &mut waiting.receiver).await {
                Ok(permit) => permit.map_err(|_| ShedReason::QueueFull),
                Err(_) => Err(ShedReason::AdmissionTimeout),
            },
        }
    }

    fn issue_permit(self: &Arc<Self>, queue: &mut PermitQueue, account: Arc<str>) -> TokenizerPermit {
        queue.holders.push(account.clone());
        TokenizerPermit { permits: self.clone(), account }
    }

    /// Assigns the free permits to waiting requests and batch lines; returns them for delivery.
    fn grant_free_permits(self: &Arc<Self>, queue: &mut PermitQueue) -> GrantedPermits {
        let mut handed = Vec::new();
        while queue.holders.len() < queue.limit {
            let PermitQueue { holders: counting, requests, lines, .. } = queue;
            let may_run = |account: &Arc<str>| !counting.contains(account);
            let mut account = None;
            let request = requests.pop_first_match(|candidate, _| {
                let may = may_run(candidate);
                account = may.then(|| candidate.clone());
                may
            });
            let (account, hand) = match (account, request) {
                (Some(account), Some(hand)) => (account, hand),
                _ => {
                    let Some(line) = lines.iter().position(|line| may_run(&line.account)) else { break };
                    let Some(line) = lines.remove(line) else { break };
                    (line.account, line.sender)
                }
            };
            handed.push((hand, self.issue_permit(queue, account)));
        }
        handed
    }
}

impl PermitQueue {
    /// Returns true if a new request of the account may count at once. If a permit is free, each waiting request waits
    /// only because its own account holds a permit.
    fn may_start(&self, account: &Arc<str>) -> bool {
        self.holders.len() < self.limit && !self.holders.contains(account)
    }

    fn enqueue_line(&mut self, account: Arc<str>, hand: oneshot::Sender<TokenizerPermit>) -> u64 {
        self.last_ticket += 1;
        self.lines.push_back(WaitingBatchLine { ticket: self.last_ticket, account, sender: hand });
        self.last_ticket
    }
}

/// Delivers permits to their waiters. If a waiter no longer exists, its permit is dropped, which releases it.
fn send_permits(handed: GrantedPermits) {
    for (hand, permit) in handed {
        hand.send(permit).ok();
    }
}

impl Drop for TokenizerPermit {
    fn drop(&mut self) {
        let handed = {
            let mut queue = self.permits.0.lock();
            if let Some(at) = queue.holders.iter().position(|account| *account == self.account) {
                queue.holders.swap_remove(at);
            }
            self.permits.grant_free_permits(&mut queue)
        };
        send_permits(handed);
    }
}

impl Drop for PermitWaiter<'_> {
    fn drop(&mut self) {
        let mut queue = self.permits.0.lock();
        if self.is_batch_line {
            queue.lines.retain(|line| line.ticket != self.ticket);
        } else {
            queue.requests.remove(self.account, self.ticket);
        }
        drop(queue);
        // A permit that is sent from now on returns to its sender; a permit that was already sent is dropped with the
        // channel.
        self.receiver.close();
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

    /// Spawns a task that waits for a permit.
    fn wanted(
        permits: &Arc<TokenizerPermits>,
        name: &str,
        wait: Option<Duration>,
    ) -> tokio::task::JoinHandle<Result<TokenizerPermit, ShedReason>> {
        let (permits, account) = (permits.clone(), account(name));
        tokio::spawn(async move { permits.acquire(&account, 100, wait).await })
    }

    async fn until_waiting(permits: &Arc<TokenizerPermits>, count: usize) {
        while permits.running_and_waiting_counts().1 != count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn accounts_count_fairly_and_a_cancelled_count_delays_no_other() {
        let permits = TokenizerPermits::new(1);
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
        assert_eq!(permits.running_and_waiting_counts(), (1, 9), "one of its own was before it, not ten");
        // The running count takes longer than the maximum wait of these requests.
        for one in own {
            assert_eq!(one.await.unwrap().err(), Some(ShedReason::AdmissionTimeout));
        }
        drop(theirs);
        assert_eq!(permits.running_and_waiting_counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_one_permit_however_many_are_free() {
        let permits = TokenizerPermits::new(3);
        let first = permits.acquire(&account("busy"), 100, WAIT).await.unwrap();
        let second = wanted(&permits, "busy", WAIT);
        let line = wanted(&permits, "busy", None);
        until_waiting(&permits, 2).await;
        let theirs = permits.acquire(&account("other"), 100, WAIT).await.unwrap();
        assert_eq!(permits.running_and_waiting_counts(), (2, 2), "two of three are taken");
        drop(first);
        let second = second.await.unwrap().unwrap();
        assert!(!line.is_finished(), "lines wait behind requests");
        drop(second);
        let line = line.await.unwrap().unwrap();
        drop((line, theirs));
        assert_eq!(permits.running_and_waiting_counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_and_an_unclaimed_permit_moves_on() {
        let permits = TokenizerPermits::new(1);
        let first = permits.acquire(&account("a"), 100, WAIT).await.unwrap();
        assert_eq!(permits.acquire(&account("b"), 0, WAIT).await.err(), Some(ShedReason::QueueFull));
        let (gone, line) = (wanted(&permits, "b", WAIT), wanted(&permits, "c", None));
        until_waiting(&permits, 2).await;
        drop(first);
        // The permit is sent, but the waiting task never receives it.
        gone.abort();
        drop(line.await.unwrap().unwrap());
        assert!(gone.await.is_err());
        assert_eq!(permits.running_and_waiting_counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn another_number_counts_at_once_and_takes_nothing_away() {
        let permits = TokenizerPermits::new(1);
        let first = permits.acquire(&account("a"), 100, WAIT).await.unwrap();
        let (second, third) = (wanted(&permits, "b", WAIT), wanted(&permits, "c", None));
        until_waiting(&permits, 2).await;
        permits.configure(3);
        let (second, third) = (second.await.unwrap().unwrap(), third.await.unwrap().unwrap());
        permits.configure(1);
        assert_eq!(permits.running_and_waiting_counts(), (3, 0));
        drop((first, second));
        assert_eq!(
            permits.acquire(&account("d"), 0, WAIT).await.err(),
            Some(ShedReason::QueueFull),
            "one counts still"
        );
        drop(third);
        assert!(permits.acquire(&account("d"), 0, WAIT).await.is_ok());
    }
}
