//! Pool of buffers for large bodies. A megabyte of fresh memory costs more than reading into it, because the system
//! clears and maps each of its pages. So the pool retains the buffers of large bodies for a moment after their request,
//! a few MiB in all, and the next large body reuses one of them.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size below which a body gets fresh memory, which the allocator has at hand.
const LARGE: usize = 128 << 10;
/// Limit on retained bytes in all.
pub const KEPT: usize = 8 << 20;
/// Time for which an unused buffer is retained.
pub const IDLE: Duration = Duration::from_secs(1);
/// Maximum ratio of a buffer's capacity to the requested size.
const ROOMY: usize = 4;

/// Pool of unused buffers.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Unused buffers, each with the time of its return; the latest is last.
    free: Mutex<Vec<(Instant, BytesMut)>>,
}

/// Buffer in use. It returns to its pool when the last reader drops it.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: BytesMut,
    home: Option<Arc<Buffers>>,
}

impl Buffers {
    /// Takes an empty buffer with capacity for `room` bytes.
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

    /// Drops buffers that have been unused for [`IDLE`].
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
    /// Converts into shared immutable bytes.
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

    /// A body of this length, and where its buffer is.
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
