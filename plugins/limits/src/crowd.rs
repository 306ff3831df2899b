//! The requests of a whole house: so many at work and so many bytes held at the
//! same time, and a short fair queue for those that come when there is no room.
//!
//! - The last eighth of the places is for accounts that have less than an eighth
//!   of them: who takes everything leaves a way in for everybody else.
//! - The last quarter of the bytes is for small bodies: long ones cannot keep
//!   them out, however slowly they come.
//! - Whoever waits does not fit at that moment; who comes and fits passes nobody
//!   that could have gone.

use crate::fair::{Fair, Joined};
use std::collections::HashMap;
use std::sync::Arc;

/// Bodies above this are long, in bytes.
pub const LONG: usize = 256 << 10;

/// How much a house takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Requests at the same time.
    pub requests: usize,
    /// Bytes that they hold together.
    pub bytes: usize,
    /// Requests that wait.
    pub queue: usize,
}

/// Who is in, and who waits.
#[derive(Debug)]
pub struct Crowd<W> {
    ceiling: Ceiling,
    requests: usize,
    bytes: usize,
    /// Requests at work by account.
    own: HashMap<Arc<str>, usize>,
    queue: Fair<(usize, W)>,
}

/// What a request is told that did not fit.
#[derive(Debug, PartialEq, Eq)]
pub enum Queued<W> {
    /// It waits, under this number. Whoever had to go for it is told so.
    Waits(u64, Option<W>),
    /// Too many wait already.
    Full,
}

impl<W> Crowd<W> {
    /// An empty house.
    #[must_use]
    pub fn new(ceiling: Ceiling) -> Self {
        Self { ceiling, requests: 0, bytes: 0, own: HashMap::new(), queue: Fair::default() }
    }

    /// Another ceiling from now on; who is in stays.
    pub const fn configure(&mut self, ceiling: Ceiling) {
        self.ceiling = ceiling;
    }

    /// Requests at work.
    #[must_use]
    pub const fn requests(&self) -> usize {
        self.requests
    }

    /// Bytes that are held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Seven eighths of the places or of the bytes are taken, or somebody waits: what is in no hurry gives way.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let near = |taken: usize, most: usize| taken >= most - most / 8;
        !self.queue.is_empty()
            || near(self.requests, self.ceiling.requests)
            || near(self.bytes, self.ceiling.bytes)
    }

    /// A request with a body of so many bytes comes in, if it fits.
    pub fn enter(&mut self, whose: &Arc<str>, bytes: usize) -> bool {
        let fits = self.fits(whose, bytes);
        if fits {
            self.count(whose, bytes);
        }
        fits
    }

    /// It waits, as it did not fit.
    pub fn join(&mut self, whose: &Arc<str>, bytes: usize, waiter: W) -> Queued<W> {
        match self.queue.join(whose, (bytes, waiter), self.ceiling.queue) {
            Joined::Waits(number, gone) => Queued::Waits(number, gone.map(|(_, waiter)| waiter)),
            Joined::Full => Queued::Full,
        }
    }

    /// It waits no longer, whether or not it still did.
    pub fn forget(&mut self, whose: &Arc<str>, number: u64) {
        self.queue.leave(whose, number);
    }

    /// The next of those who wait that fits; it is in from now on. To be asked until nobody is left.
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

    /// Who is in holds so many bytes more, if they fit.
    pub const fn grow(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.ceiling.bytes;
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// So many bytes are held no longer.
    pub const fn shrink(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// A request is over, with all that it held.
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

/// Whether a request fits beside `requests` that hold so many bytes, `own` of them of its account.
const fn room(ceiling: Ceiling, requests: usize, held: usize, own: usize, bytes: usize) -> bool {
    let eighth = ceiling.requests / 8;
    let places = requests < ceiling.requests - eighth || (requests < ceiling.requests && own < eighth);
    let most = if bytes > LONG { ceiling.bytes - ceiling.bytes / 4 } else { ceiling.bytes };
    places && held.saturating_add(bytes) <= most
}
