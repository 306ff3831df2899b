//! Detection of the format of a response body. Some engines answer a streaming request with a JSON object or with JSON
//! lines, whose line ends may be missing, and others stream although the request did not ask for it.

#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};
use penstock_core::{UpstreamError, UpstreamErrorKind};
use penstock_json_scan::json;

/// Possible first bytes of an event stream.
const SSE_PREFIXES: [&[u8]; 6] = [b"data:", b"event:", b"id:", b"retry:", b"error:", b":"];

/// Format of the response to a streaming request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// Unknown, because only white space has arrived; the event decoder skips it.
    #[default]
    Unknown,
    /// Server-sent events.
    EventStream,
    /// JSON object, which is complete when the provider closes the stream, or the first of several JSON lines.
    JsonObject,
    /// Events as JSON lines (`application/x-ndjson`): each line has the data of one event, or of several consecutive
    /// ones.
    JsonLines,
}

impl BodyFormat {
    /// Returns the format of a body that begins with the given bytes. A body whose first byte other than white space is
    /// not `{` counts as an event stream.
    pub(crate) fn detect(bytes: &[u8]) -> Self {
        match bytes.iter().find(|byte| !is_space(**byte)) {
            None => Self::Unknown,
            Some(b'{') => Self::JsonObject,
            Some(_) => Self::EventStream,
        }
    }
}

/// Converter of a response body to server-sent events: an event stream passes unchanged, JSON lines become events, and
/// a JSON object is buffered until the body ends.
///
/// JSON lines are detected by the first byte of their second value: until then the first one may be a whole answer.
#[derive(Debug, Default)]
pub(crate) struct BodyToSseConverter {
    format: BodyFormat,
    object: BytesMut,
    /// Number of bytes of the object that were already scanned for the end of its first value or line.
    scanned_bytes: usize,
    first_line: FirstLine,
    scanner: ValueScanner,
    line: LinePosition,
}

/// Position of the next byte in a stream of JSON lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// Position before a line.
    #[default]
    Start,
    /// Position in a line, not directly after a value.
    Inside,
    /// Position after a complete value of the line: another value may follow.
    AfterValue,
}

/// Scanner that finds the ends of objects and lists. It does not validate: events are validated later.
#[derive(Clone, Copy, Debug, Default)]
struct ValueScanner {
    depth: usize,
    is_string: bool,
    is_escaped: bool,
}

impl ValueScanner {
    /// Reads the next byte; returns true if the outermost object or list ends with it.
    #[inline]
    const fn advance(&mut self, byte: u8) -> bool {
        match (self.is_string, byte) {
            (true, _) if self.is_escaped => self.is_escaped = false,
            (true, b'\\') => self.is_escaped = true,
            (_, b'"') => self.is_string = !self.is_string,
            (true, _) => {}
            (false, b'{' | b'[') => self.depth += 1,
            (false, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            (false, _) => {}
        }
        false
    }
}

/// First line of a body that begins with a JSON object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstLine {
    /// Line whose end has not arrived.
    #[default]
    Open,
    /// Complete JSON value; the value and the white space after it end at this position.
    Value(usize),
    /// Line of an object with several lines, or of a body that is not JSON.
    Other,
}

impl BodyToSseConverter {
    /// Takes the next bytes of the body and returns them as bytes of an event stream; `None` while they may belong to a
    /// JSON object, which is buffered.
    ///
    /// # Errors
    /// Returns `Malformed` for an object of more than `max_bytes`.
    pub(crate) fn push(&mut self, bytes: Bytes, max_bytes: usize) -> Result<Option<Bytes>, UpstreamError> {
        if self.format == BodyFormat::Unknown {
            self.format = BodyFormat::detect(&bytes);
        }
        match self.format {
            BodyFormat::Unknown | BodyFormat::EventStream => return Ok(Some(bytes)),
            BodyFormat::JsonLines => return Ok(Some(self.lines_as_events(&bytes))),
            BodyFormat::JsonObject => self.object.extend_from_slice(&bytes),
        }
        if self.begins_json_lines() {
            self.format = BodyFormat::JsonLines;
            let lines = std::mem::take(&mut self.object).freeze();
            let events = self.lines_as_events(lines.get(start_of(&lines)..).unwrap_or_default());
            // The event decoder has received the white space before the first line; a line end separates it from the
            // line.
            return Ok(Some([b"\n", &*events].concat().into()));
        }
        if self.object.len() > max_bytes {
            self.object = BytesMut::new();
            return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
        }
        Ok(None)
    }

    /// Returns true if the object so far is a JSON value in one line, and another object or list begins after it.
    fn begins_json_lines(&mut self) -> bool {
        if self.first_line == FirstLine::Open {
            let start = match self.scanned_bytes {
                0 => start_of(&self.object),
                scanned => scanned,
            };
            self.scanned_bytes = self.object.len();
            let rest = self.object.get(start..).unwrap_or_default();
            match first_value_end(&mut self.scanner, rest) {
                None => return false,
                Some(FirstLine::Value(end))
                    if is_json_value(self.object.get(..start + end).unwrap_or_default()) =>
                {
                    self.first_line = FirstLine::Value(start + end);
                }
                Some(_) => self.first_line = FirstLine::Other,
            }
        }
        let FirstLine::Value(end) = self.first_line else { return false };
        let rest = self.object.get(end..).unwrap_or_default();
        let next = start_of(rest);
        match rest.get(next) {
            None => {
                // Scanning continues after the white space in the next call, so that no byte is scanned twice.
                self.first_line = FirstLine::Value(end + next);
                false
            }
            Some(b'{' | b'[') => true,
            Some(_) => {
                self.first_line = FirstLine::Other;
                false
            }
        }
    }

    /// Converts JSON lines to server-sent events.
    fn lines_as_events(&mut self, bytes: &[u8]) -> Bytes {
        let mut events = BytesMut::with_capacity(bytes.len() + 64);
        for byte in bytes {
            match (self.line, byte) {
                (LinePosition::Start, _) => {
                    events.extend_from_slice(b"data: ");
                    self.scanner = ValueScanner::default();
                }
                (LinePosition::AfterValue, b'{' | b'[') => events.extend_from_slice(b"\n\ndata: "),
                (LinePosition::Inside | LinePosition::AfterValue, _) => {}
            }
            self.line = match byte {
                b'\n' => LinePosition::Start,
                byte if self.scanner.advance(*byte) => LinePosition::AfterValue,
                byte if self.line == LinePosition::AfterValue && is_space(*byte) => LinePosition::AfterValue,
                _ => LinePosition::Inside,
            };
            events.extend_from_slice(&[*byte]);
            if self.line == LinePosition::Start {
                events.extend_from_slice(b"\n");
            }
        }
        events.freeze()
    }

    /// Takes the buffered object, without a byte order mark; `None` if the body is empty or a stream of events. Called
    /// after the provider has closed the stream.
    pub(crate) fn take_buffered_object(&mut self) -> Option<Bytes> {
        if self.format != BodyFormat::JsonObject {
            return None;
        }
        let object = std::mem::take(&mut self.object).freeze();
        Some(object.slice(start_of(&object)..))
    }

    /// Returns the number of buffered bytes of the object.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.object.len()
    }
}

/// Format of a body, as far as its first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStart {
    /// Start of a stream of server-sent events.
    EventStream,
    /// Start of a body that is no stream of server-sent events.
    Other,
    /// Bytes that are too few to show the format.
    Unknown {
        /// Number of bytes of white space at the start, which may be dropped.
        ignored: usize,
    },
}

impl BodyStart {
    /// Detects the format of a body that begins with these bytes.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Self {
        let ignored = start_of(bytes);
        let body = bytes.get(ignored..).unwrap_or_default();
        if SSE_PREFIXES.iter().any(|word| body.starts_with(word)) {
            return Self::EventStream;
        }
        let may_follow = SSE_PREFIXES.iter().any(|word| word.starts_with(body));
        if may_follow { Self::Unknown { ignored } } else { Self::Other }
    }
}

/// Returns true if a body is a stream of events: server-sent events or JSON lines.
pub(crate) fn is_event_stream(body: &[u8]) -> bool {
    let body = body.get(start_of(body)..).unwrap_or_default();
    SSE_PREFIXES.iter().any(|word| body.starts_with(word)) || is_json_lines(body)
}

/// Returns true if a body that begins without white space is a JSON object in one line, and another object or list
/// begins after it.
fn is_json_lines(body: &[u8]) -> bool {
    if !may_have_two_values(body) {
        return false;
    }
    let first = first_value_end(&mut ValueScanner::default(), body).filter(|_| body.starts_with(b"{"));
    let Some(FirstLine::Value(end)) = first else { return false };
    let (value, rest) = body.split_at_checked(end).unwrap_or_default();
    matches!(rest.get(start_of(rest)), Some(b'{' | b'[')) && is_json_value(value)
}

/// Returns true if an opening bracket follows a closing one with only white space between them, even inside a string.
/// Otherwise the body has a single value. This check is much faster than the search for the end of the first value,
/// and suffices for most answers.
fn may_have_two_values(body: &[u8]) -> bool {
    memchr::memchr2_iter(b'{', b'[', body).any(|at| {
        let mut before = body.get(..at).unwrap_or_default().iter().rev();
        before.find(|byte| !is_space(**byte)).is_some_and(|last| matches!(last, b'}' | b']'))
    })
}

/// Returns the end of the first object or list, or `Other` if the line ends before it; `None` if more bytes are needed.
fn first_value_end(scanner: &mut ValueScanner, bytes: &[u8]) -> Option<FirstLine> {
    let mut at = 0;
    loop {
        if scanner.is_string && !scanner.is_escaped {
            // The text of a string is skipped up to the next quote, backslash or line end, because most bytes are text.
            let rest = bytes.get(at..).unwrap_or_default();
            at += memchr::memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
        }
        match *bytes.get(at)? {
            b'\n' => return Some(FirstLine::Other),
            byte if scanner.advance(byte) => return Some(FirstLine::Value(at + 1)),
            _ => at += 1,
        }
    }
}

/// Returns the position of the first byte other than white space.
fn start_of(body: &[u8]) -> usize {
    body.iter().position(|byte| !is_space(*byte)).unwrap_or(body.len())
}

/// Returns true if a line is one complete JSON value.
fn is_json_value(line: &[u8]) -> bool {
    let line = json::trim(line.get(start_of(line)..).unwrap_or_default());
    json::value_end(line, 0) == Some(line.len())
}

/// Returns true for white space and the bytes of a byte order mark.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf)
}
