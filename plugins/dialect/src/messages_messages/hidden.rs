//! Filter for thinking blocks that the client did not request: removes them from a native stream and renumbers the
//! blocks after them.

use super::mend;
use crate::json_cursor;
use bytes::Bytes;
use penstock_http_wire::json;
use std::borrow::Cow;

/// Returns true for a block of type `thinking` or `redacted_thinking`.
pub(super) fn is_thought(block: &[u8]) -> bool {
    let kind =
        json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    matches!(&*kind, "thinking" | "redacted_thinking")
}

/// Returns true for a delta with text of a thinking block.
pub(super) fn is_words(delta: &[u8]) -> bool {
    json_cursor::member_value(delta, "type")
        .and_then(json_cursor::parse_string)
        .is_some_and(|kind| kind == "thinking_delta")
}

/// Blocks that are hidden from the client: the provider's indices in ascending order.
#[derive(Default)]
pub(super) struct Hidden(Vec<usize>);

impl Hidden {
    /// Hides the block with this index, which must be higher than all hidden before.
    pub(super) fn leave_out(&mut self, index: usize) {
        self.0.push(index);
    }

    pub(super) fn has(&self, index: Option<usize>) -> bool {
        index.is_some_and(|index| self.0.binary_search(&index).is_ok())
    }

    /// Returns the client's index of a block that is not hidden.
    pub(super) fn number(&self, index: usize) -> usize {
        index - self.0.partition_point(|hidden| *hidden < index)
    }

    /// Returns the data of an event of this block with the client's index; the bytes are unchanged unless a block
    /// before it is hidden.
    pub(super) fn numbered<'d>(&self, data: &'d Bytes, index: Option<usize>) -> Cow<'d, [u8]> {
        match index {
            Some(index) if self.number(index) < index => Cow::Owned(mend::numbered(data, self.number(index))),
            _ => Cow::Borrowed(data),
        }
    }
}

/// Types of the deltas with a text member that clients know.
const DELTAS: [&str; 4] = ["text_delta", "thinking_delta", "input_json_delta", "signature_delta"];

/// Returns true if a delta of a known type has no text.
pub(super) fn says_nothing(delta: &[u8]) -> bool {
    let mut said = None;
    for (key, value) in json_cursor::members(delta) {
        match &*key {
            "type" if !DELTAS.iter().any(|known| json::is_string(value, known)) => return false,
            "text" | "thinking" | "partial_json" | "signature" => said = Some(value),
            _ => {}
        }
    }
    said.is_none_or(|said| matches!(said, b"\"\"" | b"null"))
}
