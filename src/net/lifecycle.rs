//! State of the process from its start to its end: starting, in service, draining, or handed over. It also counts the
//! exchanges in flight.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// State of the process (in service, draining, handed over), with its number of exchanges in flight.
#[derive(Debug, Default)]
pub struct Lifecycle {
    serving: AtomicBool,
    draining: AtomicBool,
    interrupting: AtomicBool,
    handed_over: AtomicBool,
    in_flight: AtomicUsize,
    changed: Notify,
}

/// Guard that counts an exchange as in flight until dropped.
pub struct InFlightGuard<'a> {
    lifecycle: &'a Lifecycle,
}

impl Lifecycle {
    /// Records that the start is complete: from now on requests are accepted.
    pub fn set_serving(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// Returns true once the process accepts requests, also after it began to drain.
    pub fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Starts draining: from now on the process is not ready, and accepts no new connection.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Returns true once the process drains.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ends the time to drain: requests that are still in flight are interrupted.
    pub fn start_interrupting(&self) {
        self.interrupting.store(true, Ordering::Release);
    }

    /// Returns true once the time to drain is over.
    pub fn is_interrupting(&self) -> bool {
        self.interrupting.load(Ordering::Acquire)
    }

    /// Records that another process has taken over the store, or that the takeover was cancelled.
    pub fn set_store_handed_over(&self, handed_over: bool) {
        self.handed_over.store(handed_over, Ordering::Release);
    }

    /// Returns true if another process has taken over the store, or is about to.
    pub fn is_store_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Counts an exchange as in flight until the guard is dropped.
    pub fn begin_exchange(&self) -> InFlightGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlightGuard { lifecycle: self }
    }

    /// Returns the number of exchanges in flight.
    pub fn in_flight_exchanges(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Returns the signal that is sent at the end of the last exchange in flight, and by
    /// [`Lifecycle::notify_drain_waiters`].
    pub const fn drained_signal(&self) -> &Notify {
        &self.changed
    }

    /// Wakes all tasks that wait for [`Lifecycle::drained_signal`].
    pub fn notify_drain_waiters(&self) {
        self.changed.notify_waiters();
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        if self.lifecycle.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.lifecycle.notify_drain_waiters();
        }
    }
}
