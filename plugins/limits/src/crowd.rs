//! Admission control of the gateway: maximum numbers of in-flight requests and of bytes held, with a short fair queue
//! for requests over the capacity.
//!
//! - The last eighth of the permits is reserved for accounts that hold less than an eighth: one account cannot block
//!   the others.
//! - The last quarter of the bytes is reserved for small bodies: large bodies cannot block them, however slowly they
//!   arrive.
//! - A queued request does not fit at that moment; a new request that fits does not overtake a queued request that
//!   would fit.

use crate::fair::{Fair, Joined};
use std::collections::HashMap;
use std::sync::Arc;

/// Size above which a body is large, in bytes.
pub const LONG: usize = 256 << 10;

/// Capacity of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Maximum number of requests in flight.
    pub requests: usize,
    /// Maximum number of bytes held by all requests.
    pub bytes: usize,
    /// Maximum number of queued requests.
    pub queue: usize,
}

/// State of admission: requests in flight and queued requests.
#[derive(Debug)]
pub struct Crowd<W> {
    ceiling: Ceiling,
    requests: usize,
    bytes: usize,
    /// Number of requests in flight by account.
    own: HashMap<Arc<str>, usize>,
    queue: Fair<(usize, W)>,
}

/// Result of queueing a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Queued<W> {
    /// Queued under this number, with the waiter evicted from the queue for it, which must be notified.
    Waits(u64, Option<W>),
    /// Queue full.
    Full,
}

impl<W> Crowd<W> {
    /// Returns an empty state with this capacity.
    #[must_use]
    pub fn new(ceiling: Ceiling) -> Self {
        Self { ceiling, requests: 0, bytes: 0, own: HashMap::new(), queue: Fair::default() }
    }

    /// Sets another capacity; requests in flight stay.
    pub const fn configure(&mut self, ceiling: Ceiling) {
        self.ceiling = ceiling;
    }

    /// Number of requests in flight.
    #[must_use]
    pub const fn requests(&self) -> usize {
        self.requests
    }

    /// Number of bytes held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of queued requests.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// True if seven eighths of the permits or bytes are in use, or if requests are queued: low-priority work must
    /// yield.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let near = |taken: usize, most: usize| taken >= most - most / 8;
        !self.queue.is_empty()
            || near(self.requests, self.ceiling.requests)
            || near(self.bytes, self.ceiling.bytes)
    }

    /// Admits a request with a body of this many bytes if it fits; returns true if so.
    pub fn enter(&mut self, whose: &Arc<str>, bytes: usize) -> bool {
        let fits = self.fits(whose, bytes);
        if fits {
            self.count(whose, bytes);
        }
        fits
    }

    /// Queues a request that did not fit.
    pub fn join(&mut self, whose: &Arc<str>, bytes: usize, waiter: W) -> Queued<W> {
        match self.queue.join(whose, (bytes, waiter), self.ceiling.queue) {
            Joined::Waits(number, gone) => Queued::Waits(number, gone.map(|(_, waiter)| waiter)),
            Joined::Full => Queued::Full,
        }
    }

    /// Removes a request from the queue, if it is still queued.
    pub fn forget(&mut self, whose: &Arc<str>, number: u64) {
        self.queue.leave(whose, number);
    }

    /// Admits the next queued request that fits. Callers repeat this until it returns `None`.
    pub fn admit(&mut self) -> Option<(Arc<str>, usize, W)> {
        let mut found = None;
        let (ceiling, requests, held, own) = (self.ceiling, self.requests, self.bytes, &self.own);
        let (bytes, waiter) = self.queue.take(|whose, (bytes, _)| {
            let fits = room(ceiling, requests, held, own.get(whose).copied().unwrap_or(0), *bytes);
            if fits {
                found = Some(whose.clone());
            }
            fits
        })?;
        let whose = found?;
        self.count(&whose, bytes);
        Some((whose, bytes, waiter))
    }

    /// Adds bytes to an admitted request if they fit; returns true if so.
    pub const fn grow(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.ceiling.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Releases bytes of a request.
    pub const fn shrink(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Releases an admitted request with all its bytes.
    pub fn leave(&mut self, whose: &Arc<str>, bytes: usize) {
        self.requests = self.requests.saturating_sub(1);
        self.shrink(bytes);
        if let Some(own) = self.own.get_mut(whose) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.own.remove(whose);
            }
        }
    }

    fn fits(&self, whose: &Arc<str>, bytes: usize) -> bool {
        let own = self.own.get(whose).copied().unwrap_or(0);
        room(self.ceiling, self.requests, self.bytes, own, bytes)
    }

    fn count(&mut self, whose: &Arc<str>, bytes: usize) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        match self.own.get_mut(whose) {
            Some(own) => *own += 1,
            None => drop(self.own.insert(whose.clone(), 1)),
        }
    }
}

/// True if a request fits besides `requests` that hold `held` bytes, `own` of which belong to its account.
const fn room(ceiling: Ceiling, requests: usize, held: usize, own: usize, bytes: usize) -> bool {
    let eighth = ceiling.requests / 8;
    let places = requests < ceiling.requests - eighth || (requests < ceiling.requests && own < eighth);
    let most = if bytes > LONG { ceiling.bytes - ceiling.bytes / 4 } else { ceiling.bytes };
    places && held.saturating_add(bytes) <= most
}
