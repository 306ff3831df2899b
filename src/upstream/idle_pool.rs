//! Pool of idle HTTP/1.1 connections to providers, divided into one local pool per thread. A connection belongs to the
//! thread that opened it, because the runtime of that thread polls its socket. A thread first takes connections from
//! its own pool. If it takes a connection of another thread, the connection is later returned to the pool of that
//! thread. Using such a connection wakes the other thread. Therefore a thread opens its own connection after it has
//! taken several connections of other threads.
//!
//! No task waits on an idle connection. A connection is checked when it is taken, without a system call; unused
//! connections are checked by a periodic sweep.

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

/// Maximum number of local pools; if there are more threads, some share a local pool.
const MAX_LOCAL_POOLS: usize = 64;
/// Number of connections that a thread takes from other threads before it opens its own connection.
const MAX_FOREIGN_TAKES: u32 = 8;

/// Idle connections by peer key, in one local pool per thread.
pub struct IdlePool {
    local_pools: Vec<Mutex<LocalPool>>,
    /// Number of connections in all local pools.
    idle_count: AtomicUsize,
    max_connections: usize,
    /// Maximum idle time of a pooled connection.
    max_idle: Duration,
}

/// Identifies the local pool to which a connection belongs: that of the thread that polls its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPoolId(usize);

impl LocalPoolId {
    /// Returns the id of the current thread's pool.
    pub fn of_current_thread() -> Self {
        Self(local_pool_index())
    }
}

#[derive(Default)]
struct LocalPool {
    connections: HashMap<u64, Vec<IdleConnection>, ahash::RandomState>,
    /// Number of connections that were taken from other threads since this thread last had to open a connection.
    foreign_takes: u32,
}

struct IdleConnection {
    stream: Stream,
    since: Instant,
}

impl IdlePool {
    /// Creates an empty pool for up to `max_connections` connections, each idle for up to `max_idle`.
    pub fn new(max_connections: usize, max_idle: Duration) -> Self {
        let local_pools = (0..MAX_LOCAL_POOLS).map(|_| Mutex::default()).collect();
        Self { local_pools, idle_count: AtomicUsize::new(0), max_connections, max_idle }
    }

    /// Takes the usable connection with this key that became idle last, with the id of the pool to which it has to
    /// be returned; `None` if there is none, or if this thread is to open its own connection, because it has taken
    /// several from other threads.
    pub fn take(&self, key: u64) -> Option<(Stream, LocalPoolId)> {
        if self.idle_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let own = local_pool_index();
        let local_pool = self.local_pools.get(own)?;
        if let Some(stream) = self.take_from(local_pool, key) {
            return Some((stream, LocalPoolId(own)));
        }
        if local_pool.lock().foreign_takes >= MAX_FOREIGN_TAKES {
            local_pool.lock().foreign_takes = 0;
            return None;
        }
        let others = self.local_pools.iter().enumerate().filter(|(index, _)| *index != own);
        let (stream, index) = others
            .into_iter()
            .find_map(|(index, local_pool)| Some((self.take_from(local_pool, key)?, index)))?;
        local_pool.lock().foreign_takes += 1;
        Some((stream, LocalPoolId(index)))
    }

    fn take_from(&self, local_pool: &Mutex<LocalPool>, key: u64) -> Option<Stream> {
        loop {
            let mut connection = local_pool.lock().connections.get_mut(&key)?.pop()?;
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            if clock::cached_now().saturating_duration_since(connection.since) < self.max_idle
                && is_connection_idle(&mut connection.stream)
            {
                return Some(connection.stream);
            }
        }
    }

    /// Stores an idle connection; drops it if the pool is full.
    pub fn put(&self, key: u64, stream: Stream, owner: LocalPoolId) {
        if self.idle_count.fetch_add(1, Ordering::Relaxed) >= self.max_connections {
            self.idle_count.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let Some(local_pool) = self.local_pools.get(owner.0) else { return };
        local_pool
            .lock()
            .connections
            .entry(key)
            .or_default()
            .push(IdleConnection { stream, since: clock::cached_now() });
    }

    /// Drops connections that were idle for too long, or that the provider has closed. Blocks briefly. It must not run
    /// inside an async task, because the cooperative budget of the task could hide that a connection is closed.
    pub fn sweep(&self) {
        for local_pool in &self.local_pools {
            let mut gone = Vec::new();
            local_pool.lock().connections.retain(|_, all| {
                let is_usable = |connection: &mut IdleConnection| {
                    clock::cached_now().saturating_duration_since(connection.since) < self.max_idle
                        && is_connection_idle(&mut connection.stream)
                };
                gone.extend(all.extract_if(.., |connection| !is_usable(connection)));
                !all.is_empty()
            });
            // The connections are closed after the lock is released, when `gone` is dropped.
            self.idle_count.fetch_sub(gone.len(), Ordering::Relaxed);
        }
    }
}

/// Returns true if the stream is open and has no pending bytes: on an idle connection, a provider must not send
/// anything.
fn is_connection_idle(stream: &mut Stream) -> bool {
    let mut byte = [0_u8; 1];
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte)).is_pending()
}

/// Returns the index of the current thread's pool.
fn local_pool_index() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<Option<usize>> = const { Cell::new(None) });
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let index = THREADS.fetch_add(1, Ordering::Relaxed) % MAX_LOCAL_POOLS;
            own.set(Some(index));
            index
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
        let (gateway_end, provider_end) = duplex(64);
        idle.put(key, Box::new(gateway_end), LocalPoolId::of_current_thread());
        provider_end
    }

    #[tokio::test]
    async fn a_usable_connection_is_taken_once() {
        let idle = IdlePool::new(8, LONG);
        let _provider_end = put_idle(&idle, 1);
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
    async fn an_expired_connection_is_dropped() {
        let idle = IdlePool::new(2, Duration::ZERO);
        let _provider_end = put_idle(&idle, 1);
        assert!(idle.take(1).is_none());
    }

    #[tokio::test]
    async fn borrowed_connections_return_to_their_thread_and_borrowing_is_bounded() {
        let idle = IdlePool::new(8, LONG);
        let (_provider_end, owner) = std::thread::scope(|scope| {
            scope.spawn(|| (put_idle(&idle, 1), LocalPoolId::of_current_thread())).join().unwrap()
        });
        assert_ne!(owner, LocalPoolId::of_current_thread());
        for _ in 0..MAX_FOREIGN_TAKES {
            let (stream, from) = idle.take(1).unwrap();
            assert_eq!(from, owner);
            idle.put(1, stream, from);
        }
        assert!(idle.take(1).is_none(), "the thread has to open a connection");
        let _own = put_idle(&idle, 1);
        assert_eq!(idle.take(1).unwrap().1, LocalPoolId::of_current_thread());
        assert_eq!(idle.take(1).unwrap().1, owner);
    }
}
