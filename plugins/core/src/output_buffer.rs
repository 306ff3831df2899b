//! Buffer of output for the client.

use bytes::Bytes;

/// Output bytes for the client, in order. Translators never join the chunks.
#[derive(Clone, Debug, Default)]
pub struct OutputBuffer(pub Vec<Bytes>);

impl OutputBuffer {
    /// Adds a chunk; an empty chunk is dropped.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.0.push(bytes);
        }
    }

    /// Returns the number of buffered bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns the number of buffered bytes that only this buffer holds. Shared chunks are counted by another holder.
    #[must_use]
    pub fn unshared_bytes(&self) -> usize {
        self.0.iter().filter(|chunk| chunk.is_unique()).map(Bytes::len).sum()
    }

    /// Returns true if no bytes are buffered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
