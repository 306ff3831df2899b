//! Queue that serves accounts round-robin, regardless of their number of waiters, and evicts from the account with the
//! most waiters first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Fair queue of waiters.
#[derive(Debug)]
pub struct FairQueue<W> {
    /// Accounts that have waiters, in the order in which they are served.
    ring: VecDeque<Arc<str>>,
    queues: HashMap<Arc<str>, VecDeque<(u64, W)>>,
    waiting: usize,
    last_number: u64,
}

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self { ring: VecDeque::new(), queues: HashMap::new(), waiting: 0, last_number: 0 }
    }
}

/// Result of an attempt to queue a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum EnqueueOutcome<W> {
    /// Queued under this number. If another waiter was evicted to make space, that waiter is returned and must be
    /// notified.
    Waiting(u64, Option<W>),
    /// Refused: the queue is full, and no other account has at least two more waiters than this account.
    Full,
}

impl<W> FairQueue<W> {
    /// Returns the number of waiters.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.waiting
    }

    /// Returns true if there are no waiters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Queues a waiter behind those of its account. If the queue already has `max_waiters`, evicts the newest
    /// waiter of the account with the most waiters, or refuses the new waiter if no other account has at least two more
    /// waiters than its own account.
    pub fn enqueue(&mut self, account: &Arc<str>, waiter: W, max_waiters: usize) -> EnqueueOutcome<W> {
        let mut evicted = None;
        if self.waiting >= max_waiters {
            evicted = self.evict_newest(account);
            if evicted.is_none() {
                return EnqueueOutcome::Full;
            }
        }
        self.last_number += 1;
        self.waiting += 1;
        let line = self.queues.entry(account.clone()).or_default();
        if line.is_empty() {
            self.ring.push_back(account.clone());
        }
        line.push_back((self.last_number, waiter));
        EnqueueOutcome::Waiting(self.last_number, evicted)
    }

    /// Removes and returns the next waiter for which `may` returns true: accounts round-robin, within an account first
    /// in, first out. If `may` returns false for the first waiter of an account, the other waiters of this account are
    /// skipped.
    pub fn pop_first_match(&mut self, mut may: impl FnMut(&Arc<str>, &W) -> bool) -> Option<W> {
        let lines = &self.queues;
        let at = self.ring.iter().position(|account| {
            lines.get(account).and_then(VecDeque::front).is_some_and(|(_, waiter)| may(account, waiter))
        })?;
        let account = self.ring.remove(at)?;
        let line = self.queues.get_mut(&account)?;
        let (_, waiter) = line.pop_front()?;
        self.waiting -= 1;
        if line.is_empty() {
            self.queues.remove(&account);
        } else {
            self.ring.push_back(account);
        }
        Some(waiter)
    }

    /// Removes a waiter; returns `None` if it is no longer queued.
    pub fn remove(&mut self, account: &Arc<str>, number: u64) -> Option<W> {
        let line = self.queues.get_mut(account)?;
        let at = line.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        let (_, waiter) = line.remove(at)?;
        self.on_removed(account);
        Some(waiter)
    }

    /// Removes and returns the newest waiter of the account with the most waiters; `None` if no account has at least
    /// two more waiters than `account`.
    fn evict_newest(&mut self, account: &Arc<str>) -> Option<W> {
        let own = self.queues.get(account).map_or(0, VecDeque::len);
        let (longest, _) =
            self.queues.iter().filter(|(_, line)| line.len() > own + 1).max_by_key(|(_, line)| line.len())?;
        let longest = longest.clone();
        let (_, waiter) = self.queues.get_mut(&longest)?.pop_back()?;
        self.on_removed(&longest);
        Some(waiter)
    }

    /// Updates the counts after a waiter of an account was removed.
    fn on_removed(&mut self, account: &Arc<str>) {
        self.waiting -= 1;
        if self.queues.get(account).is_some_and(VecDeque::is_empty) {
            self.queues.remove(account);
            self.ring.retain(|other| other != account);
        }
    }
}
