//! A mistake of the gateway's own costs the request that met it, and no other.
//! What a panic says may be somebody's text, so only its place is told.

use super::log;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;

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
