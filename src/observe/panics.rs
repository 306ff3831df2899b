//! Panic handling: a bug in the gateway fails the request that met it, and no other. A panic message may contain user
//! data, so only its source location is logged.

use super::log;
use crate::house::House;
use penstock_contract::{Code, Refusal};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Installs a panic hook that logs the source location.
pub fn tell() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        log::event(log::error(), "panicked", &[("place", &place)]);
        log::flush();
    }));
}

/// Runs a future until it completes; `None` if it panicked. It is pinned, because a moved future would be stored twice.
pub async fn caught<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => std::task::Poll::Ready(None),
    })
    .await
}

/// Runs a part of a request's work on a blocking thread.
///
/// # Errors
/// Returns an internal error if the work panicked, whichever provider's answer it processed.
pub async fn off_thread<T: Send + 'static>(
    house: &Arc<House>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    #[cfg(feature = "inject")]
    let work = {
        let house = house.clone();
        move || {
            house.inject.at(crate::inject::At::OffThread);
            work()
        }
    };
    spawn_blocking(work).await.map_err(|error| {
        // Otherwise the runtime is shutting down, and the work did not start.
        if error.is_panic() {
            house.metrics.panicked();
        }
        Refusal::new(Code::Internal)
    })
}
