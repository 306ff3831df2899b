//! Buffer of the serialized events of an answer. A long text that several events repeat is one shared piece: the memory
//! of the buffer does not grow with the number of repetitions.

use bytes::Bytes;
use penstock_core::OutputBuffer;
use std::ops::{Deref, DerefMut};

/// Minimum size in bytes of a text that is shared. A shorter text is copied, so that events without long texts are one
/// piece.
pub(crate) const MIN_SHARED_BYTES: usize = 16 << 10;

/// Buffer of serialized events: complete pieces, and the bytes after them, to which it dereferences.
#[derive(Debug, Default)]
pub struct EventBuffer {
    pieces: Vec<Bytes>,
    tail: Vec<u8>,
}

impl Deref for EventBuffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.tail
    }
}

impl DerefMut for EventBuffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }
}

impl EventBuffer {
    /// Creates an empty buffer with the given capacity for bytes that are not shared.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { pieces: Vec::new(), tail: Vec::with_capacity(bytes) }
    }

    /// Appends a text; shares it if it is long.
    pub(crate) fn push_shared(&mut self, text: &Bytes) {
        if text.len() < MIN_SHARED_BYTES {
            return self.tail.extend_from_slice(text);
        }
        if !self.tail.is_empty() {
            self.pieces.push(std::mem::take(&mut self.tail).into());
        }
        self.pieces.push(text.clone());
    }

    /// Returns true if the buffer has no bytes.
    pub(crate) const fn has_no_bytes(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Returns the number of bytes that are not shared.
    pub(crate) fn unshared_bytes(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.is_unique()).map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// Removes all bytes.
    pub(crate) fn clear_all(&mut self) {
        self.pieces.clear();
        self.tail.clear();
    }

    /// Moves the bytes to `out`; afterwards the buffer has the given capacity for bytes that are not shared.
    pub(crate) fn move_to(&mut self, capacity: usize, out: &mut OutputBuffer) {
        self.pieces.drain(..).for_each(|piece| out.push(piece));
        out.push(Bytes::from(std::mem::replace(&mut self.tail, Vec::with_capacity(capacity))));
    }

    /// Returns the bytes in pieces.
    pub(crate) fn into_pieces(mut self) -> Vec<Bytes> {
        let mut out = OutputBuffer::default();
        self.move_to(0, &mut out);
        out.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shared_and_short_ones_copied() {
        let (long, short) = (Bytes::from(vec![b'a'; MIN_SHARED_BYTES]), Bytes::from(vec![b'b'; 10]));
        let mut buffer = EventBuffer::default();
        buffer.push_shared(&short);
        buffer.push_shared(&long);
        buffer.extend_from_slice(b"c");
        buffer.push_shared(&short);
        buffer.push_shared(&long);
        assert_eq!(buffer.unshared_bytes(), 21);
        let pieces = buffer.into_pieces();
        assert_eq!(pieces.concat(), [&short[..], &long, b"c", &short, &long].concat());
        assert_eq!(pieces.iter().filter(|piece| piece.as_ptr() == long.as_ptr()).count(), 2);
    }
}
