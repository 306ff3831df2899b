//! Filter for thinking blocks that the client did not request: recognizes them in the provider's stream, and renumbers
//! the blocks after them.

use crate::document_patches::with_block_index;
use crate::json_cursor;
use bytes::Bytes;
use std::borrow::Cow;

/// Returns true for a block of type `thinking` or `redacted_thinking`.
pub(super) fn is_thinking_block(block: &[u8]) -> bool {
    let kind =
        json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    matches!(&*kind, "thinking" | "redacted_thinking")
}

/// Blocks that are hidden from the client: their indices in ascending order.
#[derive(Default)]
pub(super) struct HiddenBlocks(Vec<usize>);

impl HiddenBlocks {
    /// Hides the block with this index, which must be higher than the indices of all blocks hidden so far.
    pub(super) fn hide(&mut self, index: usize) {
        self.0.push(index);
    }

    /// Returns true if the block with this index is hidden; false without an index.
    pub(super) fn contains(&self, index: Option<usize>) -> bool {
        index.is_some_and(|index| self.0.binary_search(&index).is_ok())
    }

    /// Returns the index that the client receives for a block that is not hidden.
    pub(super) fn client_index(&self, index: usize) -> usize {
        index - self.0.partition_point(|hidden| *hidden < index)
    }

    /// Returns the data of an event about the block `index` with the index that the block has for the client. The bytes
    /// are unchanged unless an earlier block is hidden.
    pub(super) fn with_client_index<'d>(&self, data: &'d Bytes, index: Option<usize>) -> Cow<'d, [u8]> {
        match index {
            Some(index) if self.client_index(index) < index => {
                Cow::Owned(with_block_index(data, self.client_index(index)))
            }
            _ => Cow::Borrowed(data),
        }
    }
}
