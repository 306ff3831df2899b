//! Idle HTTP/1.1 connections to providers. A connection's home is the shelf of the
//! thread that opened it, for its socket is watched there: it is taken from there
//! first and goes back there, and whoever else borrows it pays for waking that
//! thread. Who has borrowed for a while opens connections of its own.
//!
//! Nobody waits on an idle connection. Whether it is still good is looked at when
//! it is taken, which costs no system call; those that nobody takes are swept.

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

/// Shelves; threads beyond that share.
const MAX_THREAD_POOLS: usize = 64;
/// Times that a thread borrows before it opens a connection of its own.
const FOREIGN_CHECKS: u32 = 8;

/// Idle connections by what they lead to.
pub struct IdlePool {
    shelves: Vec<Mutex<ThreadPool>>,
    /// Connections on all shelves.
    kept: AtomicUsize,
    most: usize,
    /// Maximum idle time.
    patience: Duration,
}

/// The thread that watches a connection's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPoolIndex(usize);

impl ThreadPoolIndex {
    /// Of what this thread opens now.
    pub fn current() -> Self {
        Self(own_pool_index())
    }
}

#[derive(Default)]
struct ThreadPool {
    kept: HashMap<u64, Vec<IdleConnection>, ahash::RandomState>,
    /// Times that its thread borrowed since it opened one.
    borrowed: u32,
}

struct IdleConnection {
    stream: Stream,
    since: Instant,
}

impl IdlePool {
    /// Empty shelves for `most` connections, each for `patience` at the longest.
    pub fn new(most: usize, patience: Duration) -> Self {
        let shelves = (0..MAX_THREAD_POOLS).map(|_| Mutex::default()).collect();
        Self { shelves, kept: AtomicUsize::new(0), most, patience }
    }

    /// The connection with this key that idled last, if one is good, and where it goes back to.
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

    /// Keeps a connection on which nothing is under way; drops it if there is no room.
    pub fn put(&self, key: u64, stream: Stream, home: ThreadPoolIndex) {
        if self.kept.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.kept.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let Some(shelf) = self.shelves.get(home.0) else { return };
        shelf.lock().kept.entry(key).or_default().push(IdleConnection { stream, since: clock::cached_now() });
    }

    /// Drops what has idled too long or was closed by its provider. Blocks for a
    /// moment, and must not run inside a task: its budget would hide closed ones.
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
            // They are closed after the lock was given back.
            self.kept.fetch_sub(gone.len(), Ordering::Relaxed);
        }
    }
}

/// Returns true if the stream has no bytes and no end: a provider sends nothing on an idle connection.
fn is_quiet(stream: &mut Stream) -> bool {
    let mut byte = [0_u8; 1];
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// The place of this thread's shelf.
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

    /// Puts a connection on the shelf; its other end.
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
