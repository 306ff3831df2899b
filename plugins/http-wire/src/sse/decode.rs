//! Decoder of server-sent events. The events do not depend on the boundaries of the pushed chunks.

use bytes::{Buf, Bytes, BytesMut};
use std::ops::Range;

/// Server-sent event, or comment lines that belong to no event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Value of the `event:` field, if there was one.
    pub event: Option<Bytes>,
    /// Values of the `data:` lines, joined by line feeds. Empty for a lone comment.
    pub data: Bytes,
    /// Comment lines of this event without their colons, joined by line feeds.
    pub comment: Option<Bytes>,
    /// Values of the `error:` lines, joined by line feeds. The standard has no such field: old llama.cpp servers report
    /// errors in it.
    pub error: Option<Bytes>,
}

impl SseEvent {
    /// Returns the report of an error: an `error:` field, or the data of an event named `error`.
    #[must_use]
    pub fn error_data(&self) -> Option<&Bytes> {
        self.error.as_ref().or_else(|| (self.event.as_deref()? == b"error").then_some(&self.data))
    }
}

/// Error of an incomplete event that exceeds the decoder's cap. The decoder returns no event after this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLong;

/// Decoder of server-sent events. LF, CRLF and CR end lines; a leading BOM is skipped.
///
/// Data inside one pushed chunk is returned without a copy.
#[derive(Debug)]
pub struct SseDecoder {
    max_event_bytes: usize,
    /// Current chunk, if no bytes of an earlier one are left.
    piece: Bytes,
    /// Remaining bytes of earlier chunks, and all later bytes.
    carry: BytesMut,
    /// Number of buffered bytes that are parsed: complete lines of the current event.
    line: usize,
    /// Number of bytes of the current line that contain no line end.
    scanned: usize,
    fields: EventFields,
    /// True if the last line ended in CR: a following LF belongs to it.
    after_cr: bool,
    /// Length of a byte order mark once the start of the stream has been checked for one; 0 before.
    bom: usize,
    is_closed: bool,
}

/// Fields of the current event, as ranges of the buffer.
#[derive(Debug, Default)]
struct EventFields {
    event: Option<Range<usize>>,
    data: Option<Range<usize>>,
    comment: Option<Range<usize>>,
    error: Option<Range<usize>>,
    joined_data: Option<Vec<u8>>,
    joined_comment: Option<Vec<u8>>,
    joined_error: Option<Vec<u8>>,
}

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

impl SseDecoder {
    /// Returns a decoder that fails when it has buffered more than `max_event_bytes` bytes of an incomplete event. A
    /// longer event passes if its end arrives in the same chunk.
    #[must_use]
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            piece: Bytes::new(),
            carry: BytesMut::new(),
            line: 0,
            scanned: 0,
            fields: EventFields::default(),
            after_cr: false,
            bom: 0,
            is_closed: false,
        }
    }

    /// Adds bytes. Call [`SseDecoder::next`] until it returns `None` before the next push.
    pub fn push(&mut self, bytes: Bytes) {
        if self.is_closed {
            return;
        }
        if self.carry.is_empty() && self.piece.is_empty() {
            self.piece = bytes;
            return;
        }
        if !self.piece.is_empty() {
            self.carry.extend_from_slice(&self.piece);
            self.piece = Bytes::new();
        }
        self.carry.extend_from_slice(&bytes);
    }

    /// Returns the next complete event, or once the error of an event that is too long; `None` if more bytes are
    /// needed, and after this error or the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<SseEvent, EventTooLong>> {
        if self.is_closed {
            return None;
        }
        self.skip_bom()?;
        loop {
            if self.after_cr {
                match self.buffer().get(self.line) {
                    None => return None,
                    Some(b'\n') => self.drop_line_feed(),
                    Some(_) => {}
                }
                self.after_cr = false;
            }
            let from = self.line + self.scanned;
            let buffer = self.buffer();
            let Some(found) = memchr::memchr2(b'\n', b'\r', buffer.get(from..).unwrap_or_default()) else {
                self.scanned = buffer.len() - self.line;
                return self.too_long().then_some(Err(EventTooLong));
            };
            let end = from + found;
            let cr = buffer.get(end) == Some(&b'\r');
            let line = self.line..end;
            self.scanned = 0;
            self.line = end + 1;
            self.after_cr = cr;
            if !line.is_empty() {
                self.take_line(line);
            } else if let Some(event) = self.take_event() {
                return Some(Ok(event));
            }
        }
    }

    /// Returns the number of bytes in memory: those of the incomplete event, copies of its joined lines, and bytes not
    /// yet decoded.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let joined = |lines: &Option<Vec<u8>>| lines.as_ref().map_or(0, Vec::len);
        let fields = &self.fields;
        let lines = [&fields.joined_data, &fields.joined_comment, &fields.joined_error];
        self.buffer().len() + lines.into_iter().map(joined).sum::<usize>()
    }

    /// Ends the stream, and returns a last event that has no blank line after it; `None` if there is none, or if the
    /// stream has ended before.
    pub fn end(&mut self) -> Option<SseEvent> {
        if self.is_closed {
            return None;
        }
        let line = self.line..self.buffer().len();
        if !line.is_empty() {
            self.take_line(line.clone());
            self.line = line.end;
        }
        self.is_closed = true;
        self.take_event()
    }

    fn buffer(&self) -> &[u8] {
        if self.piece.is_empty() { &self.carry } else { &self.piece }
    }

    fn advance(&mut self, count: usize) {
        if self.piece.is_empty() {
            self.carry.advance(count.min(self.carry.len()));
        } else {
            self.piece.advance(count.min(self.piece.len()));
        }
    }

    /// Skips a BOM; `None` while the first bytes may still become one.
    fn skip_bom(&mut self) -> Option<()> {
        if self.bom == BOM.len() {
            return Some(());
        }
        let buffer = self.buffer();
        if buffer.starts_with(&BOM) {
            self.advance(BOM.len());
        } else if BOM.starts_with(buffer) {
            return None;
        }
        self.bom = BOM.len();
        Some(())
    }

    /// Skips the LF of a CR LF whose CR ended the previous line.
    fn drop_line_feed(&mut self) {
        if self.line == 0 {
            self.advance(1);
        } else {
            self.line += 1;
        }
    }

    fn too_long(&mut self) -> bool {
        if self.buffer().len() > self.max_event_bytes {
            self.is_closed = true;
            self.piece = Bytes::new();
            self.carry = BytesMut::new();
            self.fields = EventFields::default();
        }
        self.is_closed
    }

    fn take_line(&mut self, line: Range<usize>) {
        let buffer: &[u8] = if self.piece.is_empty() { &self.carry } else { &self.piece };
        let Some(bytes) = buffer.get(line.clone()) else { return };
        let colon = memchr::memchr(b':', bytes).unwrap_or(bytes.len());
        let mut value = (line.start + colon + 1).min(line.end)..line.end;
        if buffer.get(value.start) == Some(&b' ') && !value.is_empty() {
            value.start += 1;
        }
        let fields = &mut self.fields;
        match bytes.get(..colon).unwrap_or_default() {
            b"data" => append_line(buffer, &mut fields.data, &mut fields.joined_data, value),
            b"event" => fields.event = Some(value),
            b"error" => append_line(buffer, &mut fields.error, &mut fields.joined_error, value),
            b"" => append_line(buffer, &mut fields.comment, &mut fields.joined_comment, value),
            // Ignores `id:`, `retry:` and unknown fields.
            _ => {}
        }
    }

    /// Returns the event that ends before the current line, if it has data, a comment or an error. The standard drops
    /// an event without data, but an event named `error` is returned too, because it reports an error.
    fn take_event(&mut self) -> Option<SseEvent> {
        let size = std::mem::take(&mut self.line);
        let fields = std::mem::take(&mut self.fields);
        let bytes = if self.piece.is_empty() {
            self.carry.split_to(size.min(self.carry.len())).freeze()
        } else {
            self.piece.split_to(size.min(self.piece.len()))
        };
        let is_error = || fields.event.clone().and_then(|name| bytes.get(name)) == Some(b"error");
        if fields.data.is_none() && fields.comment.is_none() && fields.error.is_none() && !is_error() {
            return None;
        }
        let take = |range: Option<Range<usize>>, joined: Option<Vec<u8>>| match (joined, range) {
            (Some(joined), _) => Some(Bytes::from(joined)),
            (None, range) => range.map(|range| bytes.slice(range)),
        };
        let event = take(fields.event, None);
        let comment = take(fields.comment, fields.joined_comment);
        let error = take(fields.error, fields.joined_error);
        let data = take(fields.data, fields.joined_data).unwrap_or_default();
        Some(SseEvent { event, data, comment, error })
    }
}

/// Adds a line to a field: the first line as a range, further lines by copy.
fn append_line(
    buffer: &[u8],
    first: &mut Option<Range<usize>>,
    joined: &mut Option<Vec<u8>>,
    value: Range<usize>,
) {
    let Some(range) = first else {
        *first = Some(value);
        return;
    };
    let joined = joined.get_or_insert_with(|| buffer.get(range.clone()).unwrap_or_default().to_vec());
    joined.push(b'\n');
    joined.extend_from_slice(buffer.get(value).unwrap_or_default());
}
