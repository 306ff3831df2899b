//! The threads that serve requests. Each has a scheduler of its own: a connection
//! stays on its thread, with the connections to providers that it uses, so that
//! nothing wakes another processor in the course of a request. A new connection
//! goes to the thread that has the fewest.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Threads at work; they end, and what runs on them, when this is dropped.
pub struct Threads(Vec<Thread>);

struct Thread {
    handle: Handle,
    connections: Arc<AtomicUsize>,
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

    /// Runs a connection to its end on the least busy thread.
    pub fn serve<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(thread) = self.0.iter().min_by_key(|thread| thread.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        let counted = Counted::new(&thread.connections);
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
        thread::Builder::new().name("penstock".to_owned()).spawn(move || {
            runtime.block_on(ended).ok();
            // What still blocks is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, connections: Arc::default(), _end: end })
    }
}

/// One connection of a thread.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
