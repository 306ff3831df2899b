//! Pool of idle HTTP/1.1 connections to providers, with one pool per thread. A connection belongs to the thread that
//! opened it, because that thread's runtime polls its socket. A thread takes connections of its own first. A connection
//! of another thread is returned to that thread's pool; its use wakes the other thread. So after several such
//! connections a thread opens one of its own.
//!
//! No task waits on an idle connection. It is checked when it is taken, without a system call; unused connections are
//! checked by periodic sweeps.

use crate::time::clock;
use parking_lot::Mutex;
use pingora_core::protocols::Stream;
use std::cell::Cell;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum number of thread pools; further threads share them.
const MAX_THREAD_POOLS: usize = 64;
/// Number of connections that a thread takes from other threads before it opens one of its own.
const FOREIGN_CHECKS: u32 = 8;

/// Idle connections by peer key, in one pool per thread.
pub struct IdlePool {
    shelves: Vec<Mutex<ThreadPool>>,
    /// Number of connections in all thread pools.
    kept: AtomicUsize,
    most: usize,
    /// Maximum idle time.
    patience: Duration,
}

/// Index of the pool of the thread that polls a connection's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPoolIndex(usize);

impl ThreadPoolIndex {
    /// Returns the index of the current thread's pool.
    pub fn current() -> Self {
        Self(own_pool_index())
    }
}

#[derive(Default)]
struct ThreadPool {
    kept: HashMap<u64, Vec<IdleConnection>, ahash::RandomState>,
    /// Number of connections taken from other threads since this thread last had to open one.
    borrowed: u32,
}

struct IdleConnection {
    stream: Stream,
    since: Instant,
}

impl IdlePool {
    /// Creates an empty pool for up to `most` connections, each idle for up to `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        let shelves = (0..MAX_THREAD_POOLS).map(|_| Mutex::default()).collect();
        Self { shelves, kept: AtomicUsize::new(0), most, patience }
    }

    /// Takes the most recently idle connection with this key that is usable, and the index of the pool to return it to.
    pub fn take(&self, key: u64) -> Option<(Stream, ThreadPoolIndex)> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let own = own_pool_index();
        let shelf = self.shelves.get(own)?;
        if let Some(stream) = self.take_from(shelf, key) {
            return Some((stream, ThreadPoolIndex(own)));
        }
        if shelf.lock().borrowed >= FOREIGN_CHECKS {
            shelf.lock().borrowed = 0;
            return None;
        }
        let others = self.shelves.iter().enumerate().filter(|(place, _)| *place != own);
        let (stream, place) =
            others.into_iter().find_map(|(place, shelf)| Some((self.take_from(shelf, key)?, place)))?;
        shelf.lock().borrowed += 1;
        Some((stream, ThreadPoolIndex(place)))
    }

    fn take_from(&self, shelf: &Mutex<ThreadPool>, key: u64) -> Option<Stream> {
        loop {
            let mut kept = shelf.lock().kept.get_mut(&key)?.pop()?;
            self.kept.fetch_sub(1, Ordering::Relaxed);
            if clock::cached_now().saturating_duration_since(kept.since) < self.patience
                && is_quiet(&mut kept.stream)
            {
                return Some(kept.stream);
            }
        }
    }

    /// Stores an idle connection; drops it if the pool is full.
    pub fn put(&self, key: u64, stream: Stream, home: ThreadPoolIndex) {
        if self.kept.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let Some(shelf) = self.shelves.get(home.0) else { return };
        shelf.lock().kept.entry(key).or_default().push(IdleConnection { stream, since: clock::cached_now() });
    }

    /// Drops connections that were idle for too long or closed by the provider. Blocks for a moment, and must not run
    /// inside a task, whose budget could hide closed connections.
    pub fn sweep(&self) {
        for shelf in &self.shelves {
            let mut gone = Vec::new();
            shelf.lock().kept.retain(|_, all| {
                let good = |kept: &mut IdleConnection| {
                    clock::cached_now().saturating_duration_since(kept.since) < self.patience
                        && is_quiet(&mut kept.stream)
                };
                gone.extend(all.extract_if(.., |kept| !good(kept)));
                !all.is_empty()
            });
            // The connections are closed after the lock is released.
            self.kept.fetch_sub(gone.len(), Ordering::Relaxed);
        }
    }
}

/// Returns true if the stream has no pending bytes and is not closed: a provider sends nothing on an idle connection.
fn is_quiet(stream: &mut Stream) -> bool {
    let mut byte = [0_u8; 1];
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// Returns the index of the current thread's pool.
fn own_pool_index() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<Option<usize>> = const { Cell::new(None) });
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let place = THREADS.fetch_add(1, Ordering::Relaxed) % MAX_THREAD_POOLS;
            own.set(Some(place));
            place
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    const LONG: Duration = Duration::from_secs(3600);

    /// Stores an idle connection in the current thread's pool. Returns the provider's end.
    fn put_idle(idle: &IdlePool, key: u64) -> DuplexStream {
        let (near, far) = duplex(64);
        idle.put(key, Box::new(near), ThreadPoolIndex::current());
        far
    }

    #[tokio::test]
    async fn a_good_one_is_taken_once() {
        let idle = IdlePool::new(8, LONG);
        let _far = put_idle(&idle, 1);
        assert!(idle.take(2).is_none());
        assert!(idle.take(1).is_some());
        assert!(idle.take(1).is_none());
    }

    #[tokio::test]
    async fn closed_or_readable_connections_are_skipped() {
        let idle = IdlePool::new(8, LONG);
        let mut first = put_idle(&idle, 1);
        drop(put_idle(&idle, 1));
        let mut last = put_idle(&idle, 1);
        last.write_all(b"HTTP/1.1 408").await.unwrap();
        let (mut taken, _) = idle.take(1).unwrap();
        taken.write_all(b"x").await.unwrap();
        assert_eq!(tokio::io::AsyncReadExt::read_u8(&mut first).await.unwrap(), b'x');
        assert!(idle.take(1).is_none());
    }

    #[tokio::test]
    async fn the_idle_pool_is_bounded_and_a_sweep_frees_entries() {
        let idle = IdlePool::new(2, LONG);
        let (_one, two, three) = (put_idle(&idle, 1), put_idle(&idle, 2), put_idle(&idle, 3));
        assert!(idle.take(3).is_none());
        drop((two, three));
        idle.sweep();
        let _three = put_idle(&idle, 3);
        assert!(idle.take(2).is_none());
        assert!(idle.take(3).is_some());
        assert!(idle.take(1).is_some());
    }

    #[tokio::test]
    async fn one_that_idled_too_long_is_dropped() {
        let idle = IdlePool::new(2, Duration::ZERO);
        let _far = put_idle(&idle, 1);
        assert!(idle.take(1).is_none());
    }

    #[tokio::test]
    async fn borrowed_connections_return_to_their_thread_and_borrowing_is_bounded() {
        let idle = IdlePool::new(8, LONG);
        let (_far, home) = std::thread::scope(|scope| {
            scope.spawn(|| (put_idle(&idle, 1), ThreadPoolIndex::current())).join().unwrap()
        });
        assert_ne!(home, ThreadPoolIndex::current());
        for _ in 0..FOREIGN_CHECKS {
            let (stream, from) = idle.take(1).unwrap();
            assert_eq!(from, home);
            idle.put(1, stream, from);
        }
        assert!(idle.take(1).is_none(), "time for one of its own");
        let _own = put_idle(&idle, 1);
        assert_eq!(idle.take(1).unwrap().1, ThreadPoolIndex::current());
        assert_eq!(idle.take(1).unwrap().1, home);
    }
}
