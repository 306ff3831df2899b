//! Admission control of the gateway: maximum numbers of requests in flight and of bytes in memory, with a small fair
//! queue for requests over the capacity.
//!
//! - The last eighth of the permits is reserved for accounts that hold less than an eighth: one account cannot block
//!   the others.
//! - The last quarter of the bytes is reserved for small bodies: large bodies cannot block them, however slowly they
//!   arrive.
//! - A request is queued only if it does not fit when it arrives; a new request that fits does not overtake a queued
//!   request that would fit too.

use crate::account_counts::AccountPermitCounts;
use crate::fair_queue::{EnqueueOutcome, FairQueue};
use std::sync::Arc;

/// Size above which a body is large, in bytes.
pub const LARGE_BODY_BYTES: usize = 256 << 10;

/// Maximum load that the gateway admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionCapacity {
    /// Maximum number of requests in flight.
    pub requests: usize,
    /// Maximum number of bytes in memory for all requests.
    pub bytes: usize,
    /// Maximum number of queued requests.
    pub queue: usize,
}

/// Admission control of the gateway: counts the requests in flight and their bytes, and queues requests over the
/// capacity.
#[derive(Debug)]
pub struct AdmissionController<W> {
    capacity: AdmissionCapacity,
    /// Requests in flight.
    requests: AccountPermitCounts,
    bytes: usize,
    queue: FairQueue<(usize, W)>,
}

/// Result of an attempt to queue a request.
#[derive(Debug, PartialEq, Eq)]
pub enum AdmissionEnqueueOutcome<W> {
    /// Queued under this number. If another waiter was evicted from the queue to make space, that waiter is returned
    /// and must be notified.
    Waiting(u64, Option<W>),
    /// Refused: the queue is full, and no waiter of another account may be evicted for this request.
    Full,
}

impl<W> AdmissionController<W> {
    /// Creates a controller with this capacity, without requests.
    #[must_use]
    pub fn new(capacity: AdmissionCapacity) -> Self {
        Self { capacity, requests: AccountPermitCounts::default(), bytes: 0, queue: FairQueue::default() }
    }

    /// Sets another capacity; requests in flight are not affected.
    pub const fn set_capacity(&mut self, capacity: AdmissionCapacity) {
        self.capacity = capacity;
    }

    /// Returns the number of requests in flight.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.requests.total()
    }

    /// Returns the number of bytes that the requests in flight hold in memory.
    #[must_use]
    pub const fn bytes_in_flight(&self) -> usize {
        self.bytes
    }

    /// Returns the number of queued requests.
    #[must_use]
    pub const fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if seven eighths of the permits or bytes are in use, or if requests are queued: low-priority work
    /// must then wait.
    #[must_use]
    pub fn is_under_pressure(&self) -> bool {
        let is_close_to_limit = |taken: usize, most: usize| taken >= most - most / 8;
        !self.queue.is_empty()
            || is_close_to_limit(self.requests.total(), self.capacity.requests)
            || is_close_to_limit(self.bytes, self.capacity.bytes)
    }

    /// Admits a request with a body of this many bytes if it fits; returns true if it was admitted.
    pub fn try_admit(&mut self, account: &Arc<str>, bytes: usize) -> bool {
        let fits = self.fits(account, bytes);
        if fits {
            self.record_admission(account, bytes);
        }
        fits
    }

    /// Queues a request that did not fit.
    pub fn enqueue(&mut self, account: &Arc<str>, bytes: usize, waiter: W) -> AdmissionEnqueueOutcome<W> {
        match self.queue.enqueue(account, (bytes, waiter), self.capacity.queue) {
            EnqueueOutcome::Waiting(number, evicted) => {
                AdmissionEnqueueOutcome::Waiting(number, evicted.map(|(_, waiter)| waiter))
            }
            EnqueueOutcome::Full => AdmissionEnqueueOutcome::Full,
        }
    }

    /// Removes a request from the queue, if it is still queued.
    pub fn cancel(&mut self, account: &Arc<str>, number: u64) {
        self.queue.remove(account, number);
    }

    /// Admits the next queued request that fits; returns its account, its bytes and its waiter, which must be notified.
    /// Callers repeat this until it returns `None`.
    pub fn admit_next(&mut self) -> Option<(Arc<str>, usize, W)> {
        let mut found = None;
        let (ceiling, requests, held) = (self.capacity, &self.requests, self.bytes);
        let (bytes, waiter) = self.queue.pop_first_match(|account, (bytes, _)| {
            let own = requests.account_count(account);
            let fits = has_capacity(ceiling, requests.total(), held, own, *bytes);
            if fits {
                found = Some(account.clone());
            }
            fits
        })?;
        let account = found?;
        self.record_admission(&account, bytes);
        Some((account, bytes, waiter))
    }

    /// Adds bytes to an admitted request if they fit; returns true if they were added.
    pub const fn try_add_bytes(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.capacity.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Subtracts bytes that a request in flight no longer holds in memory.
    pub const fn release_bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Releases an admitted request with all its bytes.
    pub fn release(&mut self, account: &Arc<str>, bytes: usize) {
        self.requests.remove(account);
        self.release_bytes(bytes);
    }

    fn fits(&self, account: &Arc<str>, bytes: usize) -> bool {
        let own = self.requests.account_count(account);
        has_capacity(self.capacity, self.requests.total(), self.bytes, own, bytes)
    }

    fn record_admission(&mut self, account: &Arc<str>, bytes: usize) {
        self.requests.add(account);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Returns true if a request with a body of `bytes` bytes fits in addition to `requests` requests that use `held`
/// bytes; `own` of these requests belong to the same account.
const fn has_capacity(
    ceiling: AdmissionCapacity,
    requests: usize,
    held: usize,
    own: usize,
    bytes: usize,
) -> bool {
    let eighth = ceiling.requests / 8;
    let has_permit = requests < ceiling.requests - eighth || (requests < ceiling.requests && own < eighth);
    let most = if bytes > LARGE_BODY_BYTES { ceiling.bytes - ceiling.bytes / 4 } else { ceiling.bytes };
    has_permit && held.saturating_add(bytes) <= most
}
