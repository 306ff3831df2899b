//! Admin requests in flight: the store is handed over to another process once there are none, and few of them use the
//! store at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of requests that read the store at a time, or hash a password, which takes 19 MiB. Others wait.
const MAX_STORE_REQUESTS: usize = 8;

/// Counter of the admin requests in flight, with the permits for their access to the store.
pub struct AdminRequestTracker {
    in_flight: Arc<AtomicUsize>,
    store_permits: Arc<Semaphore>,
}

/// Guard of an admin request in flight.
pub struct AdminRequestGuard(Arc<AtomicUsize>);

impl Default for AdminRequestTracker {
    fn default() -> Self {
        Self { in_flight: Arc::default(), store_permits: Arc::new(Semaphore::new(MAX_STORE_REQUESTS)) }
    }
}

impl AdminRequestTracker {
    /// Counts a request as in flight until the guard is dropped.
    pub fn begin(&self) -> AdminRequestGuard {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        AdminRequestGuard(self.in_flight.clone())
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Waits until the request may use the store. Changes of keys need no permit, so that a revocation never waits for
    /// a read.
    pub async fn acquire_store_permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.store_permits.clone().acquire_owned().await.ok()
    }
}

impl Drop for AdminRequestGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
