//! Part of a message in a response.

use super::item_text::ItemText;
use crate::json_cursor;
use crate::write::EventBuffer;
use crate::write::logprobs::write_response_logprobs;

/// Part of a message: text or a refusal.
#[derive(Debug, Default)]
pub(super) struct MessagePart {
    pub(super) is_refusal: bool,
    /// Text of the part, as the body of a JSON string.
    pub(super) text: ItemText,
    /// Log probabilities, as the elements of a JSON array.
    pub(super) logprobs: ItemText,
}

impl MessagePart {
    /// Returns the number of bytes of memory of the part.
    pub(super) fn buffered_bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.logprobs.len()
    }

    /// Returns the number of bytes that each event with the complete part copies.
    pub(super) fn copied_bytes(&self) -> usize {
        size_of::<Self>() + self.text.copied_bytes() + self.logprobs.copied_bytes()
    }

    /// Makes the texts shareable after their last byte.
    pub(super) fn share(&mut self) {
        self.text.share();
        self.logprobs.share();
    }

    /// Writes the part as a JSON object.
    pub(super) fn write(&self, out: &mut EventBuffer) {
        if self.is_refusal {
            out.extend_from_slice(br#"{"type":"refusal","refusal":""#);
            self.text.write(out);
            out.extend_from_slice(b"\"}");
        } else {
            out.extend_from_slice(br#"{"type":"output_text","annotations":[],"logprobs":["#);
            self.logprobs.write(out);
            out.extend_from_slice(br#"],"text":""#);
            self.text.write(out);
            out.extend_from_slice(b"\"}");
        }
    }

    /// Appends the log probabilities of a delta to the part and to `out`, as elements of an array.
    pub(super) fn push_logprobs(&mut self, logprobs: Option<&[u8]>, out: &mut EventBuffer) {
        let list = logprobs.and_then(|object| json_cursor::member_value(object, "content"));
        let start = out.len();
        if let Some(list) = list {
            write_response_logprobs(list, out);
        }
        let tokens = out.get(start..).unwrap_or_default();
        if !tokens.is_empty() {
            if !self.logprobs.is_empty() {
                self.logprobs.growing().push(b',');
            }
            self.logprobs.growing().extend_from_slice(tokens);
        }
    }
}
