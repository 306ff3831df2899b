//! Pool of buffers for large bodies. A megabyte of fresh memory costs more than reading into it, because the system
//! clears and maps each page. So the buffers of large bodies are kept for a moment after their request, a few MiB in
//! all, and reused for the next large body.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shorter bodies get memory of their own, which the allocator has at hand.
const LARGE: usize = 128 << 10;
/// Maximum bytes in the pool.
pub const KEPT: usize = 8 << 20;
/// Time that an unused buffer stays in the pool.
pub const IDLE: Duration = Duration::from_secs(1);
/// Factor by which a buffer may be longer than the requested capacity.
const ROOMY: usize = 4;

/// Pool of unused buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Buffers with the time since which each is unused; the latest is last.
    free: Mutex<Vec<(Instant, BytesMut)>>,
}

/// Buffer in use. It returns to the pool when its last reader drops it.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: BytesMut,
    home: Option<Arc<Buffers>>,
}

impl Buffers {
    /// Returns an empty buffer with this capacity.
    #[must_use]
    pub fn take(self: &Arc<Self>, room: usize) -> Buffer {
        if room < LARGE {
            return Buffer { bytes: BytesMut::with_capacity(room), home: None };
        }
        let fits = |bytes: &BytesMut| (room..=room.saturating_mul(ROOMY)).contains(&bytes.capacity());
        let mut free = self.free.lock();
        let found = free.iter().rposition(|(_, bytes)| fits(bytes)).map(|at| free.remove(at).1);
        drop(free);
        let bytes = found.unwrap_or_else(|| BytesMut::with_capacity(room));
        Buffer { bytes, home: Some(self.clone()) }
    }

    /// Frees buffers that were unused for [`IDLE`].
    pub fn tidy(&self, now: Instant) {
        let idle = |since: Instant| now.saturating_duration_since(since) >= IDLE;
        let over: Vec<_> = self.free.lock().extract_if(.., |(since, _)| idle(*since)).collect();
        drop(over);
    }

    fn put(&self, mut bytes: BytesMut) {
        bytes.clear();
        let room = bytes.capacity();
        let mut free = self.free.lock();
        if room >= LARGE && kept(&free) + room <= KEPT {
            free.push((Instant::now(), bytes));
        }
    }
}

fn kept(free: &[(Instant, BytesMut)]) -> usize {
    free.iter().map(|(_, bytes)| bytes.capacity()).sum()
}

impl Buffer {
    /// Freezes the buffer into shared bytes.
    #[must_use]
    pub fn freeze(mut self) -> Bytes {
        if self.home.is_some() { Bytes::from_owner(self) } else { std::mem::take(&mut self.bytes).freeze() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put(std::mem::take(&mut self.bytes));
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deref for Buffer {
    type Target = BytesMut;
    fn deref(&self) -> &BytesMut {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_by(buffers: &Buffers) -> usize {
        kept(&buffers.free.lock())
    }

    /// Returns a body of this length, and the address of its buffer.
    fn body(buffers: &Arc<Buffers>, length: usize) -> (Bytes, *const u8) {
        let mut buffer = buffers.take(length);
        assert!(buffer.is_empty() && buffer.capacity() >= length);
        buffer.resize(length, b'x');
        let body = buffer.freeze();
        let at = body.as_ptr();
        (body, at)
    }

    #[test]
    fn a_large_buffer_serves_again_when_its_last_reader_is_done() {
        let buffers = Arc::<Buffers>::default();
        let (first, at) = body(&buffers, 1 << 20);
        let slice = first.slice(10..20);
        drop(first);
        assert_eq!(kept_by(&buffers), 0, "somebody reads it");
        assert_eq!(slice, &b"xxxxxxxxxx"[..]);
        drop(slice);
        assert_eq!(kept_by(&buffers), 1 << 20);
        let (again, same) = body(&buffers, 900 << 10);
        assert_eq!((again.len(), same), (900 << 10, at));
        assert_eq!(kept_by(&buffers), 0);
    }

    #[test]
    fn what_is_short_much_too_long_or_too_much_is_not_kept() {
        let buffers = Arc::<Buffers>::default();
        drop(body(&buffers, LARGE - 1));
        assert_eq!(kept_by(&buffers), 0);
        drop(body(&buffers, 2 << 20));
        let (_, other) = body(&buffers, LARGE);
        assert!(!other.is_null());
        assert_eq!(kept_by(&buffers), (2 << 20) + LARGE, "a buffer of 2 MiB is too good for it");
        let many: Vec<_> = (0..20).map(|_| body(&buffers, 1 << 20)).collect();
        drop(many);
        assert!(kept_by(&buffers) <= KEPT);
        drop(body(&buffers, KEPT + 1));
        assert!(kept_by(&buffers) <= KEPT);
    }

    #[test]
    fn what_nobody_needs_is_let_go() {
        let buffers = Arc::<Buffers>::default();
        let begun = Instant::now();
        drop(body(&buffers, LARGE));
        buffers.tidy(begun);
        assert_eq!(kept_by(&buffers), LARGE);
        buffers.tidy(Instant::now() + IDLE);
        assert_eq!(kept_by(&buffers), 0);
    }
}
