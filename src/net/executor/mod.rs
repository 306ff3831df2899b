//! Worker threads that serve requests. Each has its own tokio runtime: a connection stays on its thread, with the
//! connections to providers that it uses, so that a request wakes no other processor.
//!
//! Few busy threads need less processor time than many idle ones: each of them finds more work per poll, and other
//! processes can use the remaining processors. So connections that can migrate are started on the first thread until
//! that thread is half busy. They leave it between two requests if it is overloaded and another thread is not (the
//! limits are in `load.rs`). Connections that cannot migrate are distributed evenly.

mod load;
mod migration;

use load::{WorkerLoad, WorkerSet, WorkerThread};
pub use migration::try_migrate_connection;
use std::future::Future;
use std::io;
use std::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Running worker threads; they and their tasks end on drop.
pub struct WorkerThreads {
    workers: WorkerSet,
    /// Senders that end the threads on drop.
    _ends: Vec<oneshot::Sender<()>>,
}

impl WorkerThreads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// Returns an error if a thread or its runtime cannot be created.
    pub fn start(count: usize) -> io::Result<Self> {
        Self::start_with(count, load::run_load_measurement)
    }

    fn start_with<W>(count: usize, watch: fn(WorkerSet, usize) -> W) -> io::Result<Self>
    where
        W: Future<Output = ()> + 'static,
    {
        let runtimes = (0..count.max(1))
            .map(|_| Builder::new_current_thread().enable_all().build())
            .collect::<io::Result<Vec<_>>>()?;
        let worker = |runtime: &Runtime| WorkerThread {
            handle: runtime.handle().clone(),
            load: WorkerLoad::default(),
        };
        let workers: WorkerSet = runtimes.iter().map(worker).collect();
        let begin = |(own, runtime)| spawn_thread(runtime, workers.clone(), own, watch);
        let ends = runtimes.into_iter().enumerate().map(begin).collect::<io::Result<_>>()?;
        Ok(Self { workers, _ends: ends })
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.load.open_connections()).sum()
    }

    /// Runs a connection on the thread with the fewest connections.
    pub fn spawn_pinned<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        migration::spawn_connection(
            &self.workers,
            load::least_connected_worker(&self.workers),
            Box::pin(connection),
        );
    }

    /// Runs a connection that may later migrate to another thread (see [`try_migrate_connection`]). It starts on the
    /// first thread of the list that is not busy, or on the thread with the fewest connections if all are busy.
    pub fn spawn_migratable<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        migration::spawn_connection(
            &self.workers,
            load::first_available_worker(&self.workers),
            Box::pin(connection),
        );
    }
}

/// Starts the thread that runs this runtime, as number `own` of the workers. The thread ends when the returned sender
/// is dropped.
fn spawn_thread<W>(
    runtime: Runtime,
    workers: WorkerSet,
    own: usize,
    watch: fn(WorkerSet, usize) -> W,
) -> io::Result<oneshot::Sender<()>>
where
    W: Future<Output = ()> + 'static,
{
    let (end, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("penstock".to_owned()).spawn(move || {
        migration::register_worker(&workers, own);
        runtime.block_on(async move {
            tokio::select! {
                _ = ended => {}
                () = watch(workers, own) => {}
            }
        });
        // The runtime is shut down without waiting for blocking work.
        runtime.shutdown_background();
    })?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use std::collections::HashMap;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, mpsc};

    #[test]
    fn pinned_connections_are_distributed_evenly_and_stay() {
        let threads = WorkerThreads::start(3).unwrap();
        let (sender, receiver) = mpsc::channel();
        let stay = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..9 {
            let (sender, stay) = (sender.clone(), stay.clone());
            threads.spawn_pinned(async move {
                sender.send(thread::current().id()).unwrap();
                stay.acquire().await.unwrap().forget();
                sender.send(thread::current().id()).unwrap();
            });
        }
        let mut on: HashMap<_, usize> = HashMap::new();
        receiver.iter().take(9).for_each(|id| *on.entry(id).or_default() += 1);
        assert_eq!(on.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
        stay.add_permits(9);
        receiver.iter().take(9).for_each(|id| *on.get_mut(&id).unwrap() -= 1);
        assert!(on.values().all(|left| *left == 0));
    }

    #[test]
    fn tasks_end_with_their_worker_threads() {
        let threads = WorkerThreads::start(1).unwrap();
        let (alive, gone) = mpsc::channel::<()>();
        threads.spawn_pinned(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(gone.recv().is_err());
    }

    /// Starts two threads whose load is set by the test.
    fn unmeasured() -> WorkerThreads {
        WorkerThreads::start_with(2, |_, _| std::future::pending()).unwrap()
    }

    /// Returns true if the current connection has migrated.
    async fn has_migrated() -> bool {
        let before = thread::current().id();
        let has_migrated = try_migrate_connection().await;
        assert_eq!(has_migrated, thread::current().id() != before);
        has_migrated
    }

    #[test]
    fn movable_connections_are_collected_while_their_thread_is_idle() {
        let threads = unmeasured();
        let (sender, receiver) = mpsc::channel();
        let stay = Arc::new(tokio::sync::Semaphore::new(0));
        let gather = || {
            let (sender, stay) = (sender.clone(), stay.clone());
            threads.spawn_migratable(async move {
                sender.send(thread::current().id()).unwrap();
                stay.acquire().await.unwrap().forget();
            });
            receiver.recv().unwrap()
        };
        let first = gather();
        assert!((1..64).all(|_| gather() == first), "few enough for one thread");
        assert_ne!(gather(), first, "too many for one thread");
        threads.workers[0].load.busy_share.store(501, Ordering::Relaxed);
        threads.workers[1].load.busy_share.store(499, Ordering::Relaxed);
        assert_ne!(gather(), first, "the first thread is busy");
        stay.add_permits(100);
    }

    /// Spawns idle connections on the first thread. Each ends when it gets a permit of the returned semaphore.
    fn idle(threads: &WorkerThreads, count: usize) -> Arc<tokio::sync::Semaphore> {
        let stay = Arc::new(tokio::sync::Semaphore::new(0));
        for _ in 0..count {
            let stay = stay.clone();
            migration::spawn_connection(
                &threads.workers,
                0,
                Box::pin(async move { stay.acquire().await.unwrap().forget() }),
            );
        }
        stay
    }

    /// Returns the number of connections that leave the first thread in a tick, if the two threads have these busy
    /// shares. Also returns the busy share of the other thread after the tick.
    fn leavers(busy: u32, other: u32) -> (usize, u32) {
        let threads = unmeasured();
        let _stay = idle(&threads, 16);
        threads.workers[0].load.record_busy_share(busy, other);
        threads.workers[1].load.record_busy_share(other, busy);
        let (sender, receiver) = mpsc::channel();
        for _ in 0..10 {
            let sender = sender.clone();
            migration::spawn_connection(
                &threads.workers,
                0,
                Box::pin(async move { sender.send(has_migrated().await).unwrap() }),
            );
        }
        let left = receiver.iter().take(10).filter(|left| *left).count();
        (left, threads.workers[1].load.busy_share.load(Ordering::Relaxed))
    }

    #[test]
    fn connections_migrate_only_from_an_overloaded_to_a_calm_thread() {
        assert_eq!(leavers(850, 0).0, 0, "not overloaded");
        assert_eq!(leavers(900, 601).0, 0, "the other thread is as busy");
        let (left, busy) = leavers(900, 200);
        assert_eq!(left, 2, "an eighth of them in a tick");
        assert!(busy > 200, "their load counts before it is measured");
        assert_eq!(leavers(900, 600).0, 1, "the next connection would gain nothing");
    }

    #[test]
    fn a_single_connection_stays_and_so_does_one_without_another_thread() {
        let threads = unmeasured();
        let moves = |threads: &WorkerThreads, idlers: usize| {
            let _stay = idle(threads, idlers);
            threads.workers[0].load.record_busy_share(1_000, 0);
            let (sender, receiver) = mpsc::channel();
            migration::spawn_connection(
                &threads.workers,
                0,
                Box::pin(async move { sender.send(has_migrated().await).unwrap() }),
            );
            receiver.recv().unwrap()
        };
        assert!(!moves(&threads, 1));
        assert!(!moves(&WorkerThreads::start_with(1, |_, _| std::future::pending()).unwrap(), 16));
    }

    #[test]
    fn a_moved_connection_is_counted_once() {
        let threads = unmeasured();
        let stay = idle(&threads, 2);
        threads.workers[0].load.record_busy_share(1_000, 0);
        let (sender, receiver) = mpsc::channel();
        let moving = stay.clone();
        migration::spawn_connection(
            &threads.workers,
            0,
            Box::pin(async move {
                sender.send(has_migrated().await).unwrap();
                moving.acquire().await.unwrap().forget();
            }),
        );
        assert!(receiver.recv().unwrap());
        until(|| threads.workers[0].load.open_connections() == 2);
        assert_eq!(threads.workers[1].load.open_connections(), 1);
        stay.add_permits(3);
        until(|| threads.open_connections() == 0);
    }

    fn until(is: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !is() {
            assert!(began.elapsed().as_secs() < 60, "timed out");
            thread::yield_now();
        }
    }

    #[test]
    fn a_task_outside_the_worker_threads_stays() {
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(!runtime.block_on(has_migrated()));
    }

    #[test]
    fn a_socket_is_registered_with_the_new_thread() {
        use crate::net::buffered_stream::BufferedSocket;
        use std::io::{Read, Write};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut threads = unmeasured();
        let _stay = idle(&threads, 2);
        // Channel whose sender is dropped with its thread.
        let (held, gone) = mpsc::channel::<()>();
        migration::spawn_connection(
            &threads.workers,
            0,
            Box::pin(async move {
                let _held = held;
                std::future::pending::<()>().await;
            }),
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        threads.workers[0].load.record_busy_share(1_000, 0);
        migration::spawn_connection(
            &threads.workers,
            0,
            Box::pin(async move {
                let socket =
                    BufferedSocket::new(accepted, false, std::time::Duration::from_secs(60)).unwrap();
                let mut stream: pingora_core::protocols::Stream = Box::new(socket);
                assert_eq!(stream.read_u8().await.unwrap(), b'1');
                assert!(BufferedSocket::is_movable_between_threads(&stream));
                assert!(has_migrated().await);
                let mut stream = BufferedSocket::register_moved(stream).unwrap();
                // The task waits here, and its new thread resumes it.
                let byte = stream.read_u8().await.unwrap();
                stream.write_all(&[byte]).await.unwrap();
            }),
        );
        client.write_all(b"1").unwrap();
        until(|| threads.workers[1].load.open_connections() == 1);
        // A task that still waited on a socket of the first thread would never resume.
        threads._ends.remove(0);
        assert!(gone.recv().is_err());
        client.write_all(b"2").unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"2");
    }
}
