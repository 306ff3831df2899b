//! Admission control of the gateway: maximum numbers of requests in flight and of bytes in memory, with a small fair
//! queue for requests over the capacity.
//!
//! - The last eighth of the permits is reserved for accounts that hold less than an eighth: one account cannot block
//!   the others.
//! - The last quarter of the bytes is reserved for small bodies: large bodies cannot block them, however slowly they
//!   arrive.
//! - The last eighth of the bytes, and of the bytes for large bodies, is reserved for accounts that hold less than such
//!   an eighth: the bodies and responses of one account cannot block those of the others.
//! - A request is queued only if it does not fit when it arrives; a new request that fits does not overtake a queued
//!   request that would fit too.

use crate::account_counts::AccountPermitCounts;
use crate::account_shares::AccountShares;
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
    /// Bytes in memory.
    bytes: AccountShares,
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
        Self {
            capacity,
            requests: AccountPermitCounts::default(),
            bytes: AccountShares::default(),
            queue: FairQueue::default(),
        }
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
        self.bytes.total()
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
            || is_close_to_limit(self.bytes.total(), self.capacity.bytes)
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
        let (ceiling, requests, held) = (self.capacity, &self.requests, &self.bytes);
        let (bytes, waiter) = self.queue.pop_first_match(|account, (bytes, _)| {
            let fits = has_capacity(ceiling, requests, held, account, *bytes);
            if fits {
                found = Some(account.clone());
            }
            fits
        })?;
        let account = found?;
        self.record_admission(&account, bytes);
        Some((account, bytes, waiter))
    }

    /// Adds bytes to a request of this account if they fit; returns true if they were added.
    pub fn try_add_bytes(&mut self, account: &Arc<str>, bytes: usize) -> bool {
        self.bytes.try_add(account, bytes, self.capacity.bytes)
    }

    /// Adds bytes to the body of an admitted request, which then has `size` bytes, if they fit; returns true if they
    /// were added.
    pub fn try_grow_body(&mut self, account: &Arc<str>, bytes: usize, size: usize) -> bool {
        self.bytes.try_add(account, bytes, body_capacity(self.capacity, size))
    }

    /// Subtracts bytes that a request of this account no longer holds in memory.
    pub fn release_bytes(&mut self, account: &str, bytes: usize) {
        self.bytes.remove(account, bytes);
    }

    /// Releases an admitted request with all its bytes.
    pub fn release(&mut self, account: &Arc<str>, bytes: usize) {
        self.requests.remove(account);
        self.release_bytes(account, bytes);
    }

    fn fits(&self, account: &Arc<str>, bytes: usize) -> bool {
        has_capacity(self.capacity, &self.requests, &self.bytes, account, bytes)
    }

    fn record_admission(&mut self, account: &Arc<str>, bytes: usize) {
        self.requests.add(account);
        self.bytes.add(account, bytes);
    }
}

/// Returns true if a request of this account with a body of `bytes` bytes fits in addition to the `requests` in flight
/// and the bytes that they have in memory.
fn has_capacity(
    ceiling: AdmissionCapacity,
    requests: &AccountPermitCounts,
    held: &AccountShares,
    account: &str,
    bytes: usize,
) -> bool {
    let (eighth, total) = (ceiling.requests / 8, requests.total());
    let has_permit = total < ceiling.requests - eighth
        || (total < ceiling.requests && requests.account_count(account) < eighth);
    has_permit && held.has_capacity(account, bytes, body_capacity(ceiling, bytes))
}

/// Returns the number of bytes that may be in memory together with a body of `size` bytes.
const fn body_capacity(ceiling: AdmissionCapacity, size: usize) -> usize {
    if size > LARGE_BODY_BYTES { ceiling.bytes - ceiling.bytes / 4 } else { ceiling.bytes }
}
