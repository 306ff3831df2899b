//! Migration of a connection, between two requests, from its thread to a less busy thread.

use super::load::{ConnectionGuard, WorkerSet, claim_migration_target};
use crate::time::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// All worker threads, and the index of the current thread.
    static OWN: OnceCell<(WorkerSet, usize)> = const { OnceCell::new() };
    /// Activity of the current thread.
    static AT_WORK: Cell<ThreadActivity> = const { Cell::new(ThreadActivity::Idle) };
}

/// Activity of the current thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadActivity {
    /// No connection is polled.
    Idle,
    /// Poll of a connection that stays on this thread.
    Connection,
    /// Poll of a connection that will migrate to the thread with this index.
    Migrating(usize),
}

/// Registers the current thread as the worker with the index `own`, so that its connections can migrate.
pub(super) fn register_worker(workers: &WorkerSet, own: usize) {
    OWN.with(|cell| cell.set((workers.clone(), own)).ok());
}

/// Moves the connection to another thread if the current one is much busier. Returns true if it has moved; its socket
/// then has to be registered with the new thread. Only the connection's own task may await this future.
pub async fn try_migrate_connection() -> bool {
    if AT_WORK.get() != ThreadActivity::Connection {
        return false;
    }
    let Some(to) = OWN.with(|own| own.get().and_then(|(workers, own)| claim_migration_target(workers, *own)))
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

/// Task of a connection, which caches the clock during each poll.
struct ConnectionTask<F> {
    // The future is boxed, because a future that takes another future by value stores it twice. The box also stays the
    // same when the connection migrates.
    connection: Option<Pin<Box<F>>>,
    counted: ConnectionGuard,
}

/// Spawns a connection on the thread with the index `worker_index`.
pub(super) fn spawn_connection<F>(workers: &WorkerSet, worker_index: usize, connection: Pin<Box<F>>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(worker) = workers.get(worker_index) else { return };
    worker.handle.spawn(ConnectionTask {
        connection: Some(connection),
        counted: ConnectionGuard::new(workers, worker_index),
    });
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
        let polled = clock::with_cached_time(|| connection.as_mut().poll(context));
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

/// Guard that restores the previous activity of the thread, also after a panic.
struct ActivityGuard(ThreadActivity);

impl ActivityGuard {
    /// Returns the activity at the end of the poll, and restores the previous one.
    fn final_activity(self) -> ThreadActivity {
        AT_WORK.get()
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
