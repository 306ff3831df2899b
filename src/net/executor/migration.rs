//! Connection that runs on a thread and may move to another one between two requests.

use super::load::{Counted, Workers, leave};
use crate::time::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Index of the thread.
    static OWN: OnceCell<(Workers, usize)> = const { OnceCell::new() };
    static AT_WORK: Cell<AtWork> = const { Cell::new(AtWork::Other) };
}

/// Activity of the current thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtWork {
    /// Something other than a connection.
    Other,
    Connection,
    /// Connection that stays on this thread.
    Leaving(usize),
}

/// Marks the current thread as one that serves connections.
pub(super) fn register(workers: &Workers, own: usize) {
    OWN.with(|place| place.set((workers.clone(), own)).ok());
}

/// Moves the connection to another thread if this one is much busier. Returns true if it moved: its socket then has to
/// be registered with the new thread. Must be awaited by the connection's own task.
pub async fn ease() -> bool {
    if AT_WORK.get() != AtWork::Connection {
        return false;
    }
    let Some(to) = OWN.with(|own| own.get().and_then(|(workers, own)| leave(workers, *own))) else {
        return false;
    };
    let mut left = false;
    poll_fn(|context| {
        if std::mem::replace(&mut left, true) {
            return Poll::Ready(());
        }
        AT_WORK.set(AtWork::Leaving(to));
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    true
}

/// Connection whose clock is held during each poll.
struct Task<F> {
    // Boxed, because a future that takes another one by value stores it twice. It moves as it is.
    connection: Option<Pin<Box<F>>>,
    counted: Counted,
}

/// Runs a connection on a thread.
pub(super) fn run<F>(workers: &Workers, at: usize, connection: Pin<Box<F>>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(worker) = workers.get(at) else { return };
    worker.handle.spawn(Task { connection: Some(connection), counted: Counted::new(workers, at) });
}

impl<F> Future for Task<F>
where
    F: Future<Output = ()> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        let Some(connection) = &mut task.connection else { return Poll::Ready(()) };
        let at_work = Restore(AT_WORK.replace(AtWork::Connection));
        let polled = clock::hold(|| connection.as_mut().poll(context));
        let at_work = at_work.end();
        if let AtWork::Leaving(to) = at_work
            && polled.is_pending()
            && let Some(connection) = task.connection.take()
        {
            run(&task.counted.workers, to, connection);
            return Poll::Ready(());
        }
        polled
    }
}

/// Restores the previous activity of the thread, also after a panic.
struct Restore(AtWork);

impl Restore {
    /// Previous activity.
    fn end(self) -> AtWork {
        AT_WORK.get()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
