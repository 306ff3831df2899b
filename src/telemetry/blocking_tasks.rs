//! Blocking work of requests, which runs on other threads than those that serve connections.

use super::metrics::MetricsRegistry;
use penstock_core::{ApiError, ErrorCode};
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Handles of the process that blocking work needs.
#[derive(Clone)]
pub struct BlockingContext {
    /// Metrics registry, which counts panics.
    pub metrics: Arc<MetricsRegistry>,
    /// Panics that tests inject.
    #[cfg(feature = "inject")]
    pub inject: Arc<crate::net::panic_injection::PanicInjector>,
}

/// Runs blocking work of a request on a thread of the blocking pool.
///
/// # Errors
/// Returns an internal error if the work panicked, or if the runtime is shutting down.
pub async fn run_on_blocking_thread<T: Send + 'static>(
    handles: &BlockingContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    #[cfg(feature = "inject")]
    let work = {
        let inject = handles.inject.clone();
        move || {
            inject.panic_if_armed(crate::net::panic_injection::PanicInjectionPoint::OffThread);
            work()
        }
    };
    spawn_blocking(work).await.map_err(|error| {
        // If the work did not panic, the runtime is shutting down and the work never began.
        if error.is_panic() {
            handles.metrics.count_panic();
        }
        ApiError::new(ErrorCode::Internal)
    })
}
