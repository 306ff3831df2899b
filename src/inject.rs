//! Fault injection for tests. Without the feature `inject`, which no release has, none of this is compiled.

use std::sync::atomic::{AtomicU64, Ordering};

/// Point in the life of a request at which it can be made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Request body is read, and no credits are reserved.
    Body,
    /// Reservation, limits and an upstream permit are taken, and the request to the provider is about to start.
    Attempt,
    /// Part of the response stream is sent.
    Stream,
    /// Part of the work runs on a blocking thread.
    OffThread,
    /// Request head is read, and the endpoint is not known.
    Route,
}

impl At {
    /// Points that every streamed request passes.
    pub const OF_A_STREAM: [Self; 3] = [Self::Body, Self::Attempt, Self::Stream];
}

/// Number of requests that are to panic, for each point.
#[derive(Debug, Default)]
pub struct Inject([AtomicU64; At::Route as usize + 1]);

impl Inject {
    /// Makes the next `count` requests that pass this point panic.
    pub fn next(&self, at: At, count: u64) {
        if let Some(left) = self.0.get(at as usize) {
            left.store(count, Ordering::SeqCst);
        }
    }

    /// Panics if a panic is due at this point.
    ///
    /// # Panics
    /// If [`Inject::next`] has requested it.
    #[allow(clippy::panic)]
    pub fn at(&self, at: At) {
        let Some(left) = self.0.get(at as usize) else { return };
        let due = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!due, "injected");
    }
}
