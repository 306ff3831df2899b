//! Task of a connection on a worker thread, which may move to another thread between two requests.

use super::load::{Counted, Workers, leave};
use crate::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Index of this thread among all workers.
    static OWN: OnceCell<(Workers, usize)> = const { OnceCell::new() };
    static AT_WORK: Cell<AtWork> = const { Cell::new(AtWork::Other) };
}

/// Current activity of the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtWork {
    /// Something other than a connection.
    Other,
    Connection,
    /// Connection that moves to the thread with this index.
    Leaving(usize),
}

/// Registers this thread as a worker.
pub(super) fn register(workers: &Workers, own: usize) {
    OWN.with(|place| place.set((workers.clone(), own)).ok());
}

/// Moves the connection to another thread if its own is busier; its socket must then be registered again. Returns true
/// if it has moved. Must be awaited by the connection's own task.
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

/// Task of a connection, with the clock held at each poll.
struct Task<F> {
    // Boxed: a future that is moved into another would be stored twice. The box moves as it is.
    connection: Option<Pin<Box<F>>>,
    counted: Counted,
}

/// Spawns a connection on a thread.
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

/// Guard that restores the previous activity of the thread, also when the connection panics.
struct Restore(AtWork);

impl Restore {
    /// Returns the activity at the end of the poll.
    fn end(self) -> AtWork {
        AT_WORK.get()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
