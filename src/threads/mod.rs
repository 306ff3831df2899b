//! The threads that serve requests. Each has a scheduler of its own: a connection
//! stays on its thread, with the connections to providers that it uses, so that
//! nothing wakes another processor in the course of a request.
//!
//! Few threads with much to do need less time for it than many with little: each
//! finds more done when it looks, and what else runs on the machine is left a
//! processor. So connections that can move are given to the first thread until it
//! is half busy, and leave it, between two requests, when it is busy most of the
//! time and another is not (`load.rs` has the figures). Others are dealt out evenly.

mod load;
mod task;

use load::{Load, Seat, Seats};
use std::future::Future;
use std::io;
use std::thread;
pub use task::ease;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Threads at work; they end, and what runs on them, when this is dropped.
pub struct Threads {
    seats: Seats,
    /// Dropped to end them.
    _ends: Vec<oneshot::Sender<()>>,
}

impl Threads {
    /// Starts so many, at least one.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(count: usize) -> io::Result<Self> {
        Self::watched(count, load::watch)
    }

    fn watched<W>(count: usize, watch: fn(Seats, usize) -> W) -> io::Result<Self>
    where
        W: Future<Output = ()> + 'static,
    {
        let runtimes = (0..count.max(1))
            .map(|_| Builder::new_current_thread().enable_all().build())
            .collect::<io::Result<Vec<_>>>()?;
        let seat = |runtime: &Runtime| Seat { handle: runtime.handle().clone(), load: Load::default() };
        let seats: Seats = runtimes.iter().map(seat).collect();
        let begin = |(own, runtime)| begin(runtime, seats.clone(), own, watch);
        let ends = runtimes.into_iter().enumerate().map(begin).collect::<io::Result<_>>()?;
        Ok(Self { seats, _ends: ends })
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.seats.iter().map(|seat| seat.load.open()).sum()
    }

    /// Runs a connection to its end on the thread that has the fewest.
    pub fn serve<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        task::run(&self.seats, load::emptiest(&self.seats), Box::pin(connection));
    }

    /// Runs a connection to its end that can move, see [`ease`]: on the first thread that has time for it.
    pub fn gather<F>(&self, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        task::run(&self.seats, load::first_with_time(&self.seats), Box::pin(connection));
    }
}

/// Starts one; what ends it when dropped.
fn begin<W>(
    runtime: Runtime,
    seats: Seats,
    own: usize,
    watch: fn(Seats, usize) -> W,
) -> io::Result<oneshot::Sender<()>>
where
    W: Future<Output = ()> + 'static,
{
    let (end, ended) = oneshot::channel::<()>();
    thread::Builder::new().name("penstock".to_owned()).spawn(move || {
        task::settle(&seats, own);
        runtime.block_on(async move {
            tokio::select! {
                _ = ended => {}
                () = watch(seats, own) => {}
            }
        });
        // What still blocks is not waited for.
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

    /// Two threads whose load is what a test says.
    fn unmeasured() -> Threads {
        Threads::watched(2, |_, _| std::future::pending()).unwrap()
    }

    /// Whether the connection that runs has moved.
    async fn eased() -> bool {
        let before = thread::current().id();
        let eased = ease().await;
        assert_eq!(eased, thread::current().id() != before);
        eased
    }

    #[test]
    fn what_can_move_is_gathered_while_its_thread_has_time() {
        let threads = unmeasured();
        let (tell, told) = mpsc::channel();
        let stay = Arc::new(tokio::sync::Semaphore::new(0));
        let gather = || {
            let (tell, stay) = (tell.clone(), stay.clone());
            threads.gather(async move {
                tell.send(thread::current().id()).unwrap();
                stay.acquire().await.unwrap().forget();
            });
            told.recv().unwrap()
        };
        let first = gather();
        assert!((1..64).all(|_| gather() == first), "few enough for one");
        assert_ne!(gather(), first, "more than a few");
        threads.seats[0].load.busy.store(501, Ordering::Relaxed);
        threads.seats[1].load.busy.store(499, Ordering::Relaxed);
        assert_ne!(gather(), first, "it has no time");
        stay.add_permits(100);
    }

    #[test]
    fn connections_leave_a_crowded_thread_for_a_calm_one_and_no_other() {
        let threads = unmeasured();
        let (tell, told) = mpsc::channel();
        let on_first = |busy: u32, calmest: u32| {
            threads.seats[0].load.measured(busy, calmest);
            threads.seats[1].load.measured(calmest, calmest);
            let tell = tell.clone();
            task::run(
                &threads.seats,
                0,
                Box::pin(async move {
                    let first = eased().await;
                    tell.send((first, eased().await)).unwrap();
                }),
            );
            told.recv().unwrap()
        };
        assert_eq!(on_first(850, 0), (false, false), "not crowded");
        assert_eq!(on_first(900, 601), (false, false), "the other is as crowded");
        assert_eq!(on_first(900, 600), (true, false), "the other has time");
        assert_eq!(threads.connections(), 0, "none is counted twice");
    }

    #[test]
    fn who_is_no_connection_of_a_thread_stays() {
        let runtime = Builder::new_current_thread().build().unwrap();
        assert!(!runtime.block_on(eased()));
    }

    #[test]
    fn a_socket_is_taken_up_by_the_thread_that_its_connection_moves_to() {
        use crate::socket::Socket;
        use std::io::{Read, Write};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let threads = unmeasured();
        let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(door.local_addr().unwrap()).unwrap();
        let (accepted, _) = door.accept().unwrap();
        threads.seats[0].load.measured(1_000, 0);
        task::run(
            &threads.seats,
            0,
            Box::pin(async move {
                let socket = Socket::new(accepted, false, std::time::Duration::from_secs(60)).unwrap();
                let mut stream: pingora_core::protocols::Stream = Box::new(socket);
                assert_eq!(stream.read_u8().await.unwrap(), b'1');
                assert!(Socket::can_move(&stream));
                assert!(eased().await);
                let mut stream = Socket::moved(stream).unwrap();
                // It waits here, and is woken on its new thread.
                let byte = stream.read_u8().await.unwrap();
                stream.write_all(&[byte]).await.unwrap();
            }),
        );
        client.write_all(b"1").unwrap();
        while threads.seats[1].load.open() == 0 {
            thread::yield_now();
        }
        client.write_all(b"2").unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"2");
    }
}
