//! Text of an output item, which the events at the end of the item and of the response repeat.

use crate::write::event_buffer::{EventBuffer, MIN_SHARED_BYTES};
use bytes::Bytes;
use std::ops::Deref;

/// Text of an output item, as it is written in JSON. After [`ItemText::share`], a long text is shared by all events that
/// repeat it.
#[derive(Debug, Default)]
pub(super) struct ItemText {
    /// Text to which more may be appended; empty if the text is shared.
    growing: Vec<u8>,
    /// Complete long text; empty before it is shared.
    shared: Bytes,
}

impl Deref for ItemText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.shared.is_empty() { &self.growing } else { &self.shared }
    }
}

impl ItemText {
    /// Returns the text, for appending.
    pub(super) fn growing(&mut self) -> &mut Vec<u8> {
        if !self.shared.is_empty() {
            self.growing = std::mem::take(&mut self.shared).into();
        }
        &mut self.growing
    }

    /// Makes the text shareable after its last byte; a short text stays as it is.
    pub(super) fn share(&mut self) {
        if self.growing.len() >= MIN_SHARED_BYTES {
            self.shared = std::mem::take(&mut self.growing).into();
        }
    }

    /// Writes the text.
    pub(super) fn write(&self, out: &mut EventBuffer) {
        if self.shared.is_empty() {
            out.extend_from_slice(&self.growing);
        } else {
            out.push_shared(&self.shared);
        }
    }

    /// Returns the number of bytes that each event with the complete text copies.
    pub(super) fn copied_bytes(&self) -> usize {
        if self.len() < MIN_SHARED_BYTES { self.len() } else { 0 }
    }
}
