//! Pool of buffers for large bodies. Allocating a megabyte costs more than reading into it, because the system clears
//! and maps each page. So a buffer of a large body is retained for a second after its request, and reused for the next
//! large body. The pool has at most 8 MiB in total.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum capacity of a pooled buffer, in bytes. Smaller buffers are allocated, since the allocator caches them.
const MIN_POOLED_BYTES: usize = 128 << 10;
/// Maximum total capacity of the buffers in the pool, in bytes.
pub const MAX_TOTAL_POOLED_BYTES: usize = 8 << 20;
/// Time that an unused buffer stays in the pool.
pub const MAX_IDLE_TIME: Duration = Duration::from_secs(1);
/// Factor by which the capacity of a pooled buffer may exceed the requested capacity.
const MAX_EXCESS_FACTOR: usize = 4;

/// Pool of unused buffers.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// Buffers with the time at which each was returned; the latest is last.
    free: Mutex<Vec<(Instant, BytesMut)>>,
}

/// Buffer in use. When the buffer, or the last reader of its bytes, is dropped, the buffer returns to the pool if it is
/// large enough and the pool has space.
#[derive(Debug, Default)]
pub struct PooledBuffer {
    bytes: BytesMut,
    pool: Option<Arc<BufferPool>>,
}

impl BufferPool {
    /// Returns an empty buffer with at least this capacity: one of the pool if it fits, else a new one. A buffer below
    /// 128 KiB never comes from the pool.
    #[must_use]
    pub fn take_buffer(self: &Arc<Self>, capacity: usize) -> PooledBuffer {
        if capacity < MIN_POOLED_BYTES {
            return PooledBuffer { bytes: BytesMut::with_capacity(capacity), pool: None };
        }
        let fits = |bytes: &BytesMut| {
            (capacity..=capacity.saturating_mul(MAX_EXCESS_FACTOR)).contains(&bytes.capacity())
        };
        let mut free = self.free.lock();
        let found = free.iter().rposition(|(_, bytes)| fits(bytes)).map(|at| free.remove(at).1);
        drop(free);
        let bytes = found.unwrap_or_else(|| BytesMut::with_capacity(capacity));
        PooledBuffer { bytes, pool: Some(self.clone()) }
    }

    /// Frees buffers that were unused for [`MAX_IDLE_TIME`].
    pub fn drop_idle(&self, now: Instant) {
        let idle = |since: Instant| now.saturating_duration_since(since) >= MAX_IDLE_TIME;
        let over: Vec<_> = self.free.lock().extract_if(.., |(since, _)| idle(*since)).collect();
        drop(over);
    }

    fn return_buffer(&self, mut bytes: BytesMut) {
        bytes.clear();
        let capacity = bytes.capacity();
        let mut free = self.free.lock();
        if capacity >= MIN_POOLED_BYTES && retained_bytes(&free) + capacity <= MAX_TOTAL_POOLED_BYTES {
            free.push((Instant::now(), bytes));
        }
    }
}

fn retained_bytes(free: &[(Instant, BytesMut)]) -> usize {
    free.iter().map(|(_, bytes)| bytes.capacity()).sum()
}

impl PooledBuffer {
    /// Freezes the buffer into shared bytes.
    #[must_use]
    pub fn freeze(mut self) -> Bytes {
        if self.pool.is_some() { Bytes::from_owner(self) } else { std::mem::take(&mut self.bytes).freeze() }
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.return_buffer(std::mem::take(&mut self.bytes));
        }
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Deref for PooledBuffer {
    type Target = BytesMut;
    fn deref(&self) -> &BytesMut {
        &self.bytes
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retained_by(buffers: &BufferPool) -> usize {
        retained_bytes(&buffers.free.lock())
    }

    /// Returns a body of this length, and the address of its buffer.
    fn body(buffers: &Arc<BufferPool>, length: usize) -> (Bytes, *const u8) {
        let mut buffer = buffers.take_buffer(length);
        assert!(buffer.is_empty() && buffer.capacity() >= length);
        buffer.resize(length, b'x');
        let body = buffer.freeze();
        let at = body.as_ptr();
        (body, at)
    }

    #[test]
    fn a_large_buffer_is_reused_after_its_last_reader() {
        let buffers = Arc::<BufferPool>::default();
        let (first, at) = body(&buffers, 1 << 20);
        let slice = first.slice(10..20);
        drop(first);
        assert_eq!(retained_by(&buffers), 0, "a slice of it is in use");
        assert_eq!(slice, &b"xxxxxxxxxx"[..]);
        drop(slice);
        assert_eq!(retained_by(&buffers), 1 << 20);
        let (again, same) = body(&buffers, 900 << 10);
        assert_eq!((again.len(), same), (900 << 10, at));
        assert_eq!(retained_by(&buffers), 0);
    }

    #[test]
    fn too_small_too_large_and_excess_buffers_are_not_pooled() {
        let buffers = Arc::<BufferPool>::default();
        drop(body(&buffers, MIN_POOLED_BYTES - 1));
        assert_eq!(retained_by(&buffers), 0);
        drop(body(&buffers, 2 << 20));
        let (_, other) = body(&buffers, MIN_POOLED_BYTES);
        assert!(!other.is_null());
        assert_eq!(
            retained_by(&buffers),
            (2 << 20) + MIN_POOLED_BYTES,
            "a buffer of 2 MiB is too large for it"
        );
        let many: Vec<_> = (0..20).map(|_| body(&buffers, 1 << 20)).collect();
        drop(many);
        assert!(retained_by(&buffers) <= MAX_TOTAL_POOLED_BYTES);
        drop(body(&buffers, MAX_TOTAL_POOLED_BYTES + 1));
        assert!(retained_by(&buffers) <= MAX_TOTAL_POOLED_BYTES);
    }

    #[test]
    fn idle_buffers_are_released() {
        let buffers = Arc::<BufferPool>::default();
        let begun = Instant::now();
        drop(body(&buffers, MIN_POOLED_BYTES));
        buffers.drop_idle(begun);
        assert_eq!(retained_by(&buffers), MIN_POOLED_BYTES);
        buffers.drop_idle(Instant::now() + MAX_IDLE_TIME);
        assert_eq!(retained_by(&buffers), 0);
    }
}
