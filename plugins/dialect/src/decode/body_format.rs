//! Format of a response body, detected from its first bytes: some engines answer a streaming request with JSON, and
//! others stream although the request did not ask for it.

use bytes::{Bytes, BytesMut};
use penstock_core::{UpstreamError, UpstreamErrorKind};

/// Possible first bytes of an event stream.
const SSE_PREFIXES: [&[u8]; 6] = [b"data:", b"event:", b"id:", b"retry:", b"error:", b":"];

/// Format of the response to a streaming request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// White space only so far, which the event decoder skips.
    #[default]
    Unknown,
    /// Server-sent events.
    EventStream,
    /// JSON object, complete when the provider closes the stream.
    JsonObject,
}

impl BodyFormat {
    /// Returns the format of a body that begins with these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match bytes.iter().find(|byte| !is_space(**byte)) {
            None => Self::Unknown,
            Some(b'{') => Self::JsonObject,
            Some(_) => Self::EventStream,
        }
    }
}

/// Detector of a body's format, which also buffers a JSON object.
#[derive(Debug, Default)]
pub(crate) struct FormatDetector {
    format: BodyFormat,
    object: BytesMut,
}

impl FormatDetector {
    /// Takes bytes and returns those of an event stream.
    ///
    /// # Errors
    /// Returns `Malformed` for an object of more than `most` bytes.
    pub(crate) fn push(&mut self, bytes: Bytes, most: usize) -> Result<Option<Bytes>, UpstreamError> {
        if self.format == BodyFormat::Unknown {
            self.format = BodyFormat::of(&bytes);
        }
        if self.format != BodyFormat::JsonObject {
            return Ok(Some(bytes));
        }
        if self.object.len() + bytes.len() > most {
            return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
        }
        self.object.extend_from_slice(&bytes);
        Ok(None)
    }

    /// Returns the object without a byte order mark, after the provider has closed the stream.
    pub(crate) fn take_object(&mut self) -> Option<Bytes> {
        if self.format != BodyFormat::JsonObject {
            return None;
        }
        let object = std::mem::take(&mut self.object).freeze();
        let start = object.iter().position(|byte| !is_space(*byte)).unwrap_or_default();
        Some(object.slice(start..))
    }

    /// Returns the buffered bytes of the object.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.object.len()
    }
}

/// Returns true if a body is an event stream.
pub(crate) fn is_event_stream(body: &[u8]) -> bool {
    let start = body.iter().position(|byte| !is_space(*byte)).unwrap_or(body.len());
    let body = body.get(start..).unwrap_or_default();
    SSE_PREFIXES.iter().any(|word| body.starts_with(word))
}

/// Returns true for white space and the bytes of a byte order mark.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_object_is_buffered_up_to_its_size_limit() {
        for (most, fits) in [(6, false), (7, true), (8, true)] {
            let mut opening = FormatDetector::default();
            let pushed: Vec<_> = [" \n", "{\"a\"", ":1}"]
                .map(|piece| opening.push(Bytes::from_static(piece.as_bytes()), most))
                .into_iter()
                .collect();
            assert_eq!(
                pushed.first().unwrap().as_ref().unwrap().as_deref(),
                Some(&b" \n"[..]),
                "white space passes"
            );
            assert_eq!(pushed.iter().all(Result::is_ok), fits, "at most {most}");
            if fits {
                assert_eq!(opening.buffered_bytes(), 7);
                assert_eq!(opening.take_object().as_deref(), Some(&b"{\"a\":1}"[..]));
            }
        }
    }

    #[test]
    fn the_first_byte_that_is_not_white_space_decides_the_format() {
        let mark = "\u{feff}";
        for (bytes, form) in [
            ("", BodyFormat::Unknown),
            ("\r\n ", BodyFormat::Unknown),
            (mark, BodyFormat::Unknown),
            ("{", BodyFormat::JsonObject),
            (&format!("{mark} {{\"id\":1}}"), BodyFormat::JsonObject),
            ("data: {}", BodyFormat::EventStream),
            (": hello", BodyFormat::EventStream),
            ("<html>", BodyFormat::EventStream),
        ] {
            assert_eq!(BodyFormat::of(bytes.as_bytes()), form, "{bytes:?}");
        }
        for (body, streamed) in [
            ("data: {}\n\n", true),
            ("\n\nevent: ping\n\n", true),
            (": comment\n\n", true),
            ("error: {}\n\n", true),
            ("{\"data\":1}", false),
            ("dat", false),
            ("<html>", false),
            ("", false),
        ] {
            assert_eq!(is_event_stream(body.as_bytes()), streamed, "{body:?}");
        }
    }
}
