//! Connection that runs on a thread and may move to another one between two requests.

use super::load::{ConnectionGuard, WorkerSet, migration_target};
use crate::time::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// Index of the thread.
    static OWN: OnceCell<(WorkerSet, usize)> = const { OnceCell::new() };
    static AT_WORK: Cell<ThreadActivity> = const { Cell::new(ThreadActivity::Idle) };
}

/// Activity of the current thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadActivity {
    /// Something other than a connection.
    Idle,
    Connection,
    /// Connection that stays on this thread.
    Migrating(usize),
}

/// Marks the current thread as one that serves connections.
pub(super) fn register_worker(workers: &WorkerSet, own: usize) {
    OWN.with(|place| place.set((workers.clone(), own)).ok());
}

/// Moves the connection to another thread if this one is much busier. Returns true if it moved: its socket then has to
/// be registered with the new thread. Must be awaited by the connection's own task.
pub async fn yield_and_migrate() -> bool {
    if AT_WORK.get() != ThreadActivity::Connection {
        return false;
    }
    let Some(to) = OWN.with(|own| own.get().and_then(|(workers, own)| migration_target(workers, *own)))
    else {
        return false;
    };
    let mut left = false;
    poll_fn(|context| {
        if std::mem::replace(&mut left, true) {
            return Poll::Ready(());
        }
        AT_WORK.set(ThreadActivity::Migrating(to));
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    true
}

/// Connection whose clock is held during each poll.
struct ConnectionTask<F> {
    // Boxed, because a future that takes another one by value stores it twice. It moves as it is.
    connection: Option<Pin<Box<F>>>,
    counted: ConnectionGuard,
}

/// Runs a connection on a thread.
pub(super) fn spawn_connection<F>(workers: &WorkerSet, at: usize, connection: Pin<Box<F>>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(worker) = workers.get(at) else { return };
    worker
        .handle
        .spawn(ConnectionTask { connection: Some(connection), counted: ConnectionGuard::new(workers, at) });
}

impl<F> Future for ConnectionTask<F>
where
    F: Future<Output = ()> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        let Some(connection) = &mut task.connection else { return Poll::Ready(()) };
        let at_work = ActivityGuard(AT_WORK.replace(ThreadActivity::Connection));
        let polled = clock::cache_during(|| connection.as_mut().poll(context));
        let at_work = at_work.final_activity();
        if let ThreadActivity::Migrating(to) = at_work
            && polled.is_pending()
            && let Some(connection) = task.connection.take()
        {
            spawn_connection(&task.counted.workers, to, connection);
            return Poll::Ready(());
        }
        polled
    }
}

/// Restores the previous activity of the thread, also after a panic.
struct ActivityGuard(ThreadActivity);

impl ActivityGuard {
    /// Previous activity.
    fn final_activity(self) -> ThreadActivity {
        AT_WORK.get()
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
