//! Part of a message in a response.

use crate::json_cursor;
use crate::write::logprobs::write_response_logprobs;

/// Part of a message: text or a refusal.
#[derive(Debug, Default)]
pub(super) struct MessagePart {
    pub(super) is_refusal: bool,
    /// Text of the part, as the body of a JSON string.
    pub(super) text: Vec<u8>,
    /// Log probabilities, as the elements of a JSON array.
    pub(super) logprobs: Vec<u8>,
}

impl MessagePart {
    /// Returns the number of bytes of memory of the part.
    pub(super) const fn buffered_bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.logprobs.len()
    }

    /// Writes the part as a JSON object.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.is_refusal {
            out.extend_from_slice(br#"{"type":"refusal","refusal":""#);
            out.extend_from_slice(&self.text);
            out.extend_from_slice(b"\"}");
        } else {
            out.extend_from_slice(br#"{"type":"output_text","annotations":[],"logprobs":["#);
            out.extend_from_slice(&self.logprobs);
            out.extend_from_slice(br#"],"text":""#);
            out.extend_from_slice(&self.text);
            out.extend_from_slice(b"\"}");
        }
    }

    /// Appends the log probabilities of a delta to the part and to `out`, as elements of an array.
    pub(super) fn push_logprobs(&mut self, logprobs: Option<&[u8]>, out: &mut Vec<u8>) {
        let list = logprobs.and_then(|object| json_cursor::member_value(object, "content"));
        let start = out.len();
        if let Some(list) = list {
            write_response_logprobs(list, out);
        }
        let tokens = out.get(start..).unwrap_or_default();
        if !tokens.is_empty() {
            if !self.logprobs.is_empty() {
                self.logprobs.push(b',');
            }
            self.logprobs.extend_from_slice(tokens);
        }
    }
}
