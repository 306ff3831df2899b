//! What a model thought and nobody asked for: left out of a native stream, wherever it stands, and the blocks behind it
//! numbered as if it had never been.

use super::mend;
use crate::json_cursor;
use bytes::Bytes;
use penstock_wire::json;
use std::borrow::Cow;

/// Whether a block holds what the model thought.
pub(super) fn is_thought(block: &[u8]) -> bool {
    let kind =
        json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
    matches!(&*kind, "thinking" | "redacted_thinking")
}

/// Whether a delta says words of a thought.
pub(super) fn is_words(delta: &[u8]) -> bool {
    json_cursor::member_value(delta, "type")
        .and_then(json_cursor::parse_string)
        .is_some_and(|kind| kind == "thinking_delta")
}

/// The blocks that are left out, by the provider's numbers in rising order.
#[derive(Default)]
pub(super) struct Hidden(Vec<usize>);

impl Hidden {
    /// The block of this number, higher than all before it, is left out.
    pub(super) fn leave_out(&mut self, index: usize) {
        self.0.push(index);
    }

    pub(super) fn has(&self, index: Option<usize>) -> bool {
        index.is_some_and(|index| self.0.binary_search(&index).is_ok())
    }

    /// The client's number of a block that is not left out.
    pub(super) fn number(&self, index: usize) -> usize {
        index - self.0.partition_point(|hidden| *hidden < index)
    }

    /// The data of an event about the block of this number, as the client counts: the bytes as they came unless
    /// something was left out before it.
    pub(super) fn numbered<'d>(&self, data: &'d Bytes, index: Option<usize>) -> Cow<'d, [u8]> {
        match index {
            Some(index) if self.number(index) < index => Cow::Owned(mend::numbered(data, self.number(index))),
            _ => Cow::Borrowed(data),
        }
    }
}

/// Deltas of which clients know the text.
const DELTAS: [&str; 4] = ["text_delta", "thinking_delta", "input_json_delta", "signature_delta"];

/// Whether a delta of a known kind has no text in it.
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
