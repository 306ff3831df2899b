//! Fair scheduler of batch lines. It limits the lines in flight of the gateway, and grants permits round-robin to
//! accounts and, within an account, to its batches. A batch without lines in flight may always start one line, so that
//! a batch does not wait for other batches whose provider is unavailable.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::Notify;

/// Scheduler of the lines of all batches, or of all background responses.
#[derive(Clone, Default)]
pub struct FairScheduler(Arc<Mutex<SchedulerState>>);

#[derive(Default)]
struct SchedulerState {
    /// Lines in flight, and granted permits that are not used yet.
    taken: usize,
    /// Maximum number of lines in flight and granted permits together, as last configured.
    limit: usize,
    /// Accounts that wait for a permit, in the order in which they are served.
    accounts: VecDeque<Arc<str>>,
    /// Batches that wait for a permit, by account.
    waiting: HashMap<Arc<str>, VecDeque<Arc<BatchWaiter>>>,
}

#[derive(Default)]
struct BatchWaiter {
    state: Mutex<WaiterState>,
    granted: Notify,
}

#[derive(Default)]
struct WaiterState {
    queued: bool,
    /// Permits that were granted and not used yet.
    granted: usize,
}

/// Entry of a batch in the scheduler; removed on drop.
pub struct SchedulerEntry {
    scheduler: FairScheduler,
    account: Arc<str>,
    waiter: Arc<BatchWaiter>,
}

/// Permit to run one line; on drop it goes to the next batch in the queue.
pub struct RunPermit(FairScheduler);

impl FairScheduler {
    /// Returns an entry for a batch of this account.
    pub fn register_batch(&self, account: &str) -> SchedulerEntry {
        SchedulerEntry { scheduler: self.clone(), account: account.into(), waiter: Arc::default() }
    }

    /// Returns the number of lines in flight, and of granted permits that are not used yet.
    pub fn in_flight(&self) -> usize {
        self.0.lock().taken
    }

    fn release(&self) {
        let mut inner = self.0.lock();
        inner.taken = inner.taken.saturating_sub(1);
        inner.grant_free();
    }
}

impl SchedulerState {
    /// Grants free permits to the batches in the queue.
    fn grant_free(&mut self) {
        while self.taken < self.limit {
            let Some(account) = self.accounts.pop_front() else { return };
            let Some(batches) = self.waiting.get_mut(&account) else { continue };
            let next = batches.pop_front();
            if batches.is_empty() {
                self.waiting.remove(&account);
            } else {
                self.accounts.push_back(account);
            }
            if let Some(waiter) = next {
                self.taken += 1;
                let mut waits = waiter.state.lock();
                waits.queued = false;
                waits.granted += 1;
                drop(waits);
                waiter.granted.notify_one();
            }
        }
    }
}

impl SchedulerEntry {
    /// Returns a permit if this batch is the next to be served; otherwise queues the batch. `max_permits` is the
    /// maximum number of permits in use in the gateway. If `idle` is true, the batch has no lines in flight and gets a
    /// permit even beyond this maximum.
    pub fn try_acquire(&self, max_permits: usize, idle: bool) -> Option<RunPermit> {
        let mut inner = self.scheduler.0.lock();
        inner.limit = max_permits;
        if self.take_grant() {
            return Some(self.permit());
        }
        let mut waits = self.waiter.state.lock();
        if !waits.queued {
            waits.queued = true;
            drop(waits);
            let batches = inner.waiting.entry(self.account.clone()).or_default();
            batches.push_back(self.waiter.clone());
            if batches.len() == 1 {
                inner.accounts.push_back(self.account.clone());
            }
        } else {
            drop(waits);
        }
        inner.grant_free();
        if self.take_grant() {
            return Some(self.permit());
        }
        if idle {
            inner.taken += 1;
            return Some(self.permit());
        }
        None
    }

    /// Waits until a permit is granted, or returns at once if one was granted since the last call.
    pub async fn wait_for_grant(&self) {
        self.waiter.granted.notified().await;
    }

    /// Removes the batch from the queue; its unused permits go to other batches.
    pub fn leave_queue(&self) {
        let mut inner = self.scheduler.0.lock();
        let waits = std::mem::take(&mut *self.waiter.state.lock());
        if waits.queued
            && let Some(batches) = inner.waiting.get_mut(&self.account)
        {
            batches.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            if batches.is_empty() {
                inner.waiting.remove(&self.account);
                inner.accounts.retain(|account| *account != self.account);
            }
        }
        inner.taken = inner.taken.saturating_sub(waits.granted);
        inner.grant_free();
    }

    fn take_grant(&self) -> bool {
        let mut waits = self.waiter.state.lock();
        let given = waits.granted > 0;
        waits.granted -= usize::from(given);
        given
    }

    fn permit(&self) -> RunPermit {
        RunPermit(self.scheduler.clone())
    }
}

impl Drop for SchedulerEntry {
    fn drop(&mut self) {
        self.leave_queue();
    }
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    /// Ends lines in the order of their start; returns the permits of each batch.
    fn end_lines(
        scheduler: &FairScheduler,
        entries: &[SchedulerEntry],
        most: usize,
        ends: usize,
    ) -> Vec<usize> {
        let mut at_work: VecDeque<(usize, RunPermit)> = VecDeque::new();
        let fill = |at_work: &mut VecDeque<(usize, RunPermit)>| {
            loop {
                let before = at_work.len();
                for (index, entry) in entries.iter().enumerate() {
                    let idle = !at_work.iter().any(|(other, _)| *other == index);
                    at_work.extend(entry.try_acquire(most, idle).map(|permit| (index, permit)));
                }
                if at_work.len() == before {
                    return;
                }
            }
        };
        for _ in 0..ends {
            fill(&mut at_work);
            at_work.pop_front();
        }
        fill(&mut at_work);
        assert_eq!(scheduler.in_flight(), at_work.len());
        (0..entries.len()).map(|index| at_work.iter().filter(|(of, _)| *of == index).count()).collect()
    }

    #[test]
    fn accounts_share_alike_however_many_batches_they_have() {
        let scheduler = FairScheduler::default();
        let entries = [
            scheduler.register_batch("a"),
            scheduler.register_batch("a"),
            scheduler.register_batch("a"),
            scheduler.register_batch("b"),
        ];
        let shares = end_lines(&scheduler, &entries, 24, 200);
        assert_eq!(shares.iter().sum::<usize>(), 24);
        let (a, b) = (shares[..3].iter().sum::<usize>(), shares[3]);
        assert!(a.abs_diff(b) <= 2, "{shares:?}");
        assert!(shares[..3].iter().all(|share| share.abs_diff(4) <= 1), "{shares:?}");
    }

    #[test]
    fn a_single_account_has_all_capacity_and_yields_half_to_a_second() {
        let scheduler = FairScheduler::default();
        let first = scheduler.register_batch("a");
        let mut held: VecDeque<RunPermit> = std::iter::from_fn(|| first.try_acquire(8, false)).collect();
        assert_eq!(held.len(), 8);
        let second = scheduler.register_batch("b");
        let own = second.try_acquire(8, true).unwrap();
        assert_eq!(scheduler.in_flight(), 9, "the first line of a batch waits for nobody");
        let mut theirs = 0;
        for _ in 0..9 {
            held.pop_front();
            if let Some(permit) = second.try_acquire(8, false) {
                theirs += 1;
                std::mem::forget(permit);
            }
            held.extend(first.try_acquire(8, false));
        }
        assert!((3..=5).contains(&theirs), "{theirs}");
        drop(own);
    }

    #[test]
    fn a_disconnect_ends_the_wait_and_releases_the_permits() {
        let scheduler = FairScheduler::default();
        let (one, two) = (scheduler.register_batch("a"), scheduler.register_batch("b"));
        let held = one.try_acquire(1, false).unwrap();
        assert!(two.try_acquire(1, false).is_none());
        drop(held);
        assert_eq!(scheduler.in_flight(), 1, "the turn was given");
        drop(two);
        assert_eq!(scheduler.in_flight(), 0);
        assert!(one.try_acquire(1, false).is_some());
        assert!(scheduler.0.lock().accounts.is_empty() || scheduler.0.lock().waiting.len() == 1);
    }

    #[tokio::test]
    async fn a_waiting_batch_is_notified() {
        let scheduler = FairScheduler::default();
        let (one, two) = (scheduler.register_batch("a"), scheduler.register_batch("b"));
        let held = one.try_acquire(1, false).unwrap();
        assert!(two.try_acquire(1, false).is_none());
        drop(held);
        two.wait_for_grant().await;
        assert!(two.try_acquire(1, false).is_some());
    }
}
