//! Builder of a request body from new bytes and slices of a source body.
//!
//! Long slices of the source are shared and not copied; for short slices, a copy is cheaper than a reference count. The
//! body is the concatenation of all segments.

use crate::event::EscapedText;
use bytes::{BufMut, Bytes, BytesMut};

/// Minimum length of a slice that is shared, in bytes. Sharing costs an atomic increment and an entry in the list of
/// buffers to write; copying fewer bytes is cheaper.
const MIN_SHARED_BYTES: usize = 2048;

/// Builder of a request body from new bytes and slices of a source body.
pub(crate) struct BodyBuilder<'a> {
    source: &'a Bytes,
    segments: Vec<Bytes>,
    buffer: BytesMut,
}

impl<'a> BodyBuilder<'a> {
    /// Creates an empty body; `source` is the buffer that [`BodyBuilder::push_source`] shares.
    pub(crate) fn with_source(source: &'a Bytes) -> Self {
        Self { source, segments: Vec::with_capacity(16), buffer: BytesMut::with_capacity(4096) }
    }

    /// Appends text that is not in the source.
    pub(crate) fn push_str(&mut self, text: &str) {
        self.buffer.put_slice(text.as_bytes());
    }

    /// Appends one byte that is not in the source.
    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.buffer.put_u8(byte);
    }

    /// Appends an integer in decimal digits.
    pub(crate) fn push_integer(&mut self, number: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut left = number;
        loop {
            at -= 1;
            if let (Some(slot), Ok(digit)) = (digits.get_mut(at), u8::try_from(left % 10)) {
                *slot = b'0' + digit;
            }
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.buffer.put_slice(digits.get(at..).unwrap_or_default());
    }

    /// Appends bytes: without a copy if they are a slice of the source of at least [`MIN_SHARED_BYTES`].
    pub(crate) fn push_source(&mut self, bytes: &[u8]) {
        if bytes.len() >= MIN_SHARED_BYTES
            && let Some(shared) = shared_slice(self.source, bytes)
        {
            if !self.buffer.is_empty() {
                self.segments.push(self.buffer.split().freeze());
            }
            self.segments.push(shared);
            return;
        }
        self.buffer.put_slice(bytes);
    }

    /// Appends text as a JSON string: escapes it and adds the quotes.
    pub(crate) fn push_json_string(&mut self, text: &str) {
        self.buffer.put_u8(b'"');
        self.buffer.put_slice(EscapedText::new(text).escaped());
        self.buffer.put_u8(b'"');
    }

    /// Appends JSON as the body of a JSON string: white space between tokens is dropped, and quotes and backslashes are
    /// escaped. The order of members and the notation of values stay unchanged.
    pub(crate) fn push_escaped_json(&mut self, json: &[u8]) {
        write_escaped_json(json, &mut self.buffer);
    }

    /// Returns the segments of the body.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.buffer.is_empty() {
            self.segments.push(self.buffer.freeze());
        }
        self.segments
    }
}

/// Returns `part` as a slice that shares the memory of `source`; `None` if its bytes are not within that buffer.
pub(crate) fn shared_slice(source: &Bytes, part: &[u8]) -> Option<Bytes> {
    let start = (part.as_ptr() as usize).checked_sub(source.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= source.len()).then(|| source.slice(start..end))
}

/// Writes JSON as the body of a JSON string, like [`BodyBuilder::push_escaped_json`].
pub(crate) fn write_escaped_json(json: &[u8], out: &mut impl BufMut) {
    let mut rest = json;
    let mut inside = false;
    while let Some(byte) = rest.first() {
        let run = if inside {
            memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
        } else {
            let special = |byte: &u8| matches!(byte, b'"' | b' ' | b'\n' | b'\r' | b'\t');
            rest.iter().position(special).unwrap_or(rest.len())
        };
        if run > 0 {
            let (plain, more) = rest.split_at(run);
            out.put_slice(plain);
            rest = more;
            continue;
        }
        let length = match (inside, byte) {
            (_, b'"') => {
                inside = !inside;
                out.put_slice(br#"\""#);
                1
            }
            (true, _) => {
                // An escape in the string is copied with its backslash and its second character both escaped again.
                out.put_slice(br"\\");
                match rest.get(1) {
                    Some(b'"') => out.put_slice(br#"\""#),
                    Some(b'\\') => out.put_slice(br"\\"),
                    Some(other) => out.put_u8(*other),
                    None => {}
                }
                2
            }
            (false, _) => 1,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
