//! The threads that serve requests. Each has a scheduler of its own: a connection
//! stays on its thread, with the connections to providers that it uses, so that
//! nothing wakes another processor in the course of a request. A new connection
//! goes to the thread that has the fewest.

use crate::clock;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

/// How often a thread that has connections looks at the time. Whoever sets an alarm that is earlier than all
/// others of its thread pays for a system call; none of a request's alarms is earlier than this.
const TICK: Duration = Duration::from_millis(100);

/// Threads at work; they end, and what runs on them, when this is dropped.
pub struct Threads(Vec<Thread>);

struct Thread {
    handle: Handle,
    connections: Arc<Connections>,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

impl Threads {
    /// Starts so many, at least one.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(count: usize) -> io::Result<Self> {
        (0..count.max(1)).map(|_| Thread::start()).collect::<io::Result<_>>().map(Self)
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.iter().map(|thread| thread.connections.open.load(Ordering::Relaxed)).sum()
    }

    /// Runs a connection to its end on the least busy thread.
    pub fn serve<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(thread) = self.0.iter().min_by_key(|thread| thread.connections.open.load(Ordering::Relaxed))
        else {
            return;
        };
        let counted = Counted::new(&thread.connections);
        // Boxed: a future that is handed another keeps it twice.
        let connection = clock::held(Box::pin(connection));
        thread.handle.spawn(async move {
            let _counted = counted;
            connection.await;
        });
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let connections = Arc::<Connections>::default();
        let ticking = connections.clone();
        thread::Builder::new().name("penstock".to_owned()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    _ = ended => {}
                    () = ticking.tick() => {}
                }
            });
            // What still blocks is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, connections, _end: end })
    }
}

/// The connections of a thread.
#[derive(Default)]
struct Connections {
    open: AtomicUsize,
    first: Notify,
}

impl Connections {
    /// Ticks while there are any, and never ends.
    async fn tick(&self) {
        loop {
            match self.open.load(Ordering::Relaxed) {
                0 => self.first.notified().await,
                _ => tokio::time::sleep(TICK).await,
            }
        }
    }
}

/// One connection of a thread.
struct Counted(Arc<Connections>);

impl Counted {
    fn new(connections: &Arc<Connections>) -> Self {
        if connections.open.fetch_add(1, Ordering::Relaxed) == 0 {
            connections.first.notify_one();
        }
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashMap;
    use std::sync::mpsc;

    #[test]
    fn connections_are_dealt_out_evenly_and_stay() {
        let threads = Threads::start(3).unwrap();
        let (tell, told) = mpsc::channel();
        let stay = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..9 {
            let (tell, stay) = (tell.clone(), stay.clone());
            threads.serve(async move {
                tell.send(thread::current().id()).unwrap();
                stay.acquire().await.unwrap().forget();
                tell.send(thread::current().id()).unwrap();
            });
        }
        let mut on: HashMap<_, usize> = HashMap::new();
        told.iter().take(9).for_each(|id| *on.entry(id).or_default() += 1);
        assert_eq!(on.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
        stay.add_permits(9);
        told.iter().take(9).for_each(|id| *on.get_mut(&id).unwrap() -= 1);
        assert!(on.values().all(|left| *left == 0));
    }

    #[test]
    fn what_runs_ends_with_them() {
        let threads = Threads::start(1).unwrap();
        let (alive, gone) = mpsc::channel::<()>();
        threads.serve(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(gone.recv().is_err());
    }
}
