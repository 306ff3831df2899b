//! A connection at work on a thread, which may go on on another between two requests.

use super::load::{Counted, Workers, leave};
use crate::time::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// The thread's place among all.
    static OWN: OnceCell<(Workers, usize)> = const { OnceCell::new() };
    static AT_WORK: Cell<AtWork> = const { Cell::new(AtWork::Other) };
}

/// What this thread is at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtWork {
    /// No connection.
    Other,
    Connection,
    /// A connection that goes on on this one.
    Leaving(usize),
}

/// This thread is one of those that serve.
pub(super) fn register(workers: &Workers, own: usize) {
    OWN.with(|place| place.set((workers.clone(), own)).ok());
}

/// A connection leaves its thread here, if that has more to do than others: it goes on on another one, where its
/// socket has to be taken up anew. Whether it did. To be awaited by the connection's own task.
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

/// A connection, the clock held for it whenever it goes on.
struct Task<F> {
    // Boxed: a future that is handed another keeps it twice. It moves as it is.
    connection: Option<Pin<Box<F>>>,
    counted: Counted,
}

/// Lets a connection run on a thread.
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

/// Tells again what the thread was at before, also when the connection panics.
struct Restore(AtWork);

impl Restore {
    /// What it was at until now.
    fn end(self) -> AtWork {
        AT_WORK.get()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
