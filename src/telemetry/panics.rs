//! A mistake of the gateway's own costs the request that met it, and no other.
//! What a panic says may be somebody's text, so only its place is told.

use super::log;
use crate::state::House;
use penstock_contract::{Code, Refusal};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// From now on a panic is a line of the log with the place in the program.
pub fn tell() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        log::event(log::error(), "panicked", &[("place", &place)]);
        log::flush();
    }));
}

/// Does some work to its end; `None` if it panicked. Work that is handed over is kept twice, so it stays where it is.
pub async fn caught<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => std::task::Poll::Ready(None),
    })
    .await
}

/// Does a part of a request's work on a thread that may take its time.
///
/// # Errors
/// It panicked: a mistake of the gateway's own, whosever answer it was working on.
pub async fn off_thread<T: Send + 'static>(
    house: &Arc<House>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    #[cfg(feature = "inject")]
    let work = {
        let house = house.clone();
        move || {
            house.inject.at(crate::state::fault_injection::At::OffThread);
            work()
        }
    };
    spawn_blocking(work).await.map_err(|error| {
        // Else the process is about to end, and began nothing.
        if error.is_panic() {
            house.metrics.panicked();
        }
        Refusal::new(Code::Internal)
    })
}
