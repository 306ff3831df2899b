//! Admin requests in flight: the store is handed over to another process once there are none, and few of them use the
//! store at a time.

use penstock_core::{ApiError, ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum number of admin requests that read the store or hash a password (which takes 19 MiB) at the same time.
/// Further requests wait.
const MAX_STORE_REQUESTS: usize = 8;
/// Maximum number of dashboard requests that read the store or hash a password at the same time. The dashboard has
/// permits of its own, so that its requests do not delay those of the admin listener.
const MAX_DASHBOARD_REQUESTS: usize = 4;
/// Maximum time for which a request waits until it may use the store.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Listener whose requests share permits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePermitGroup {
    /// Admin listener, with the operators' console.
    Admin,
    /// Dashboard of the account holders.
    Dashboard,
}

/// Counter of the admin requests in flight, with the permits for their access to the store.
pub struct AdminRequestTracker {
    in_flight: Arc<AtomicUsize>,
    store_permits: Arc<Semaphore>,
    dashboard_permits: Arc<Semaphore>,
}

/// Guard of an admin request in flight.
pub struct AdminRequestGuard(Arc<AtomicUsize>);

impl Default for AdminRequestTracker {
    fn default() -> Self {
        Self {
            in_flight: Arc::default(),
            store_permits: Arc::new(Semaphore::new(MAX_STORE_REQUESTS)),
            dashboard_permits: Arc::new(Semaphore::new(MAX_DASHBOARD_REQUESTS)),
        }
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
    ///
    /// # Errors
    /// Returns a 503 if other requests use the store for too long.
    pub async fn acquire_store_permit(
        &self,
        client: StorePermitGroup,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = match client {
            StorePermitGroup::Admin => &self.store_permits,
            StorePermitGroup::Dashboard => &self.dashboard_permits,
        };
        let acquired = timeout(PERMIT_TIMEOUT, permits.clone().acquire_owned()).await;
        // The semaphores are never closed.
        acquired.ok().and_then(Result::ok).ok_or_else(too_many_requests)
    }
}

/// Returns the refusal of a request while too many others are in flight.
pub fn too_many_requests() -> ApiError {
    let message = "Too many requests to the admin API or its pages are in flight; try again shortly.";
    ApiError::with_message(ErrorCode::Overloaded, message).with_retry_after(2)
}

impl Drop for AdminRequestGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
