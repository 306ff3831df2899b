//! Fault injection for tests. Compiled only with the feature `inject`, which no release enables.

use std::sync::atomic::{AtomicU64, Ordering};

/// Point at which a request can be made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicInjectionPoint {
    /// Point after the body was read, before the reservation.
    Body,
    /// Point before the upstream request; reservation, limits and a provider permit are held.
    Attempt,
    /// Point after a part of the stream was sent.
    Stream,
    /// Point in blocking work of the request on another thread.
    OffThread,
    /// Point after the head was read, before the route lookup.
    Route,
}

impl PanicInjectionPoint {
    /// Injection points that every streamed request passes.
    pub const STREAM_POINTS: [Self; 3] = [Self::Body, Self::Attempt, Self::Stream];
}

/// Number of panics to inject, by point.
#[derive(Debug, Default)]
pub struct PanicInjector([AtomicU64; PanicInjectionPoint::Route as usize + 1]);

impl PanicInjector {
    /// Injects panics into the next `count` requests that pass the point.
    pub fn arm(&self, point: PanicInjectionPoint, count: u64) {
        if let Some(left) = self.0.get(point as usize) {
            left.store(count, Ordering::SeqCst);
        }
    }

    /// Passes a point, and panics if a fault is due there.
    ///
    /// # Panics
    /// Panics if a panic is due at this point.
    #[allow(clippy::panic)]
    pub fn panic_if_armed(&self, point: PanicInjectionPoint) {
        let Some(left) = self.0.get(point as usize) else { return };
        let due = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        assert!(!due, "injected");
    }
}
