//! Tests only: mistakes on purpose. Without the feature `inject`, which no
//! release has, nothing of this is compiled.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where a request may be made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Its body is there, and nothing is reserved.
    Body,
    /// Its reserve, its pass and a seat are taken, and the provider is about to be asked.
    Attempt,
    /// Some of its stream is on its way.
    Stream,
    /// A part of its work is on a thread that may take its time.
    OffThread,
    /// Its head was read, and its endpoint is not known.
    Route,
}

impl At {
    /// Those that every stream comes by.
    pub const OF_A_STREAM: [Self; 3] = [Self::Body, Self::Attempt, Self::Stream];
}

/// How many requests are to panic where.
#[derive(Debug, Default)]
pub struct Inject([AtomicU64; At::Route as usize + 1]);

impl Inject {
    /// The next so many requests that come by panic there.
    pub fn next(&self, at: At, count: u64) {
        if let Some(left) = self.0.get(at as usize) {
            left.store(count, Ordering::SeqCst);
        }
    }

    /// Panics if it was told to.
    ///
    /// # Panics
    /// On purpose.
    #[allow(clippy::panic)]
    pub fn at(&self, at: At) {
        let Some(left) = self.0.get(at as usize) else { return };
        let due = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!due, "injected");
    }
}
