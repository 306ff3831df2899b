//! Panics: a panic ends only the request in which it happened. A panic message may contain text of a client, so only
//! the location in the source is logged.

use super::log;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

/// Installs a panic hook that logs the location in the source. A panic of the main thread ends the process, so the hook
/// waits for the log there; other threads continue, and must not wait for a blocked standard error.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        tracing::error!(name: "panicked", place = location);
        match std::thread::current().name() {
            Some("main") => log::flush_log(),
            _ => log::request_flush(),
        }
    }));
}

/// Polls a future to its end; `None` if it panicked. The future is passed as a pinned reference: if it were passed by
/// value, the calling future would store its state twice.
pub async fn catch_panic<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => std::task::Poll::Ready(None),
    })
    .await
}
