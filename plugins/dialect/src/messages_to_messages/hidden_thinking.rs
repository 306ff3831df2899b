//! Filter for thinking blocks that the client did not request: recognizes them in the provider's stream, and renumbers
//! the blocks after them.

use super::repair;
use crate::json_cursor;
use bytes::Bytes;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Returns true for a block of type `thinking` or `redacted_thinking`.
pub(super) fn is_thinking_block(block: &[u8]) -> bool {
    let kind =
        json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    matches!(&*kind, "thinking" | "redacted_thinking")
}

/// Returns true for a delta that contains text of a thinking block.
pub(super) fn is_thinking_delta(delta: &[u8]) -> bool {
    json_cursor::member_value(delta, "type")
        .and_then(json_cursor::parse_string)
        .is_some_and(|kind| kind == "thinking_delta")
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
                Cow::Owned(repair::with_block_index(data, self.client_index(index)))
            }
            _ => Cow::Borrowed(data),
        }
    }
}

/// Types of the deltas of the messages API whose content is one string: `text`, `thinking`, `partial_json` or
/// `signature`.
const KNOWN_DELTAS: [&str; 4] = ["text_delta", "thinking_delta", "input_json_delta", "signature_delta"];

/// Returns true if a delta has no text; false for deltas of types other than [`KNOWN_DELTAS`].
pub(super) fn is_empty_delta(delta: &[u8]) -> bool {
    let mut content = None;
    for (key, value) in json_cursor::members(delta) {
        match &*key {
            "type" if !KNOWN_DELTAS.iter().any(|known| json::json_string_equals(value, known)) => {
                return false;
            }
            "text" | "thinking" | "partial_json" | "signature" => content = Some(value),
            _ => {}
        }
    }
    content.is_none_or(|content| matches!(content, b"\"\"" | b"null"))
}
