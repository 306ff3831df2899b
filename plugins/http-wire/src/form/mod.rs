//! Incremental parser of `multipart/form-data`.
//!
//! The events do not depend on the boundaries of the pushed chunks. Contents are slices of these chunks, and are copied
//! only after a chunk that may end in the middle of a delimiter. At most the head of one part is buffered.

mod boundary;
mod error;
mod part_head;
pub mod upload;

pub use boundary::parse_boundary;
pub use error::MultipartError;
pub use part_head::PartHead;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;
use std::collections::VecDeque;

/// Maximum number of parts per form.
pub const MAX_PARTS: usize = 64;
/// Maximum bytes of a part head.
pub const MAX_PART_HEAD_BYTES: usize = 8 << 10;

/// Parser event, in the order of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartEvent {
    /// Start of a part.
    Part(PartHead),
    /// Bytes of the part's content; never empty.
    Content(Bytes),
    /// End of the part.
    PartEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MultipartState {
    /// State before the first delimiter of the form.
    Preamble,
    /// State directly after a delimiter: a part or the end of the form follows.
    Delimited,
    /// State inside the head of a part.
    Head,
    /// State inside the content of a part.
    Content,
    /// State after the closing delimiter, which ends the form.
    Complete,
}

/// Parser of one form.
#[derive(Debug)]
pub struct MultipartParser {
    delimiter: Finder<'static>,
    state: MultipartState,
    /// Received bytes that do not yet form a complete element, such as a part head or a delimiter.
    buffer: BytesMut,
    events: VecDeque<MultipartEvent>,
    parts: usize,
}

impl MultipartParser {
    /// Returns a parser for this boundary (see [`parse_boundary`]).
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}");
        Self {
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            state: MultipartState::Preamble,
            // A delimiter begins with a line end. The buffer starts with one, because the first delimiter may lack it.
            buffer: BytesMut::from("\r\n"),
            events: VecDeque::new(),
            parts: 0,
        }
    }

    /// Parses the next bytes.
    ///
    /// # Errors
    /// Returns the error if the form is invalid.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), MultipartError> {
        let mut rest = if self.buffer.is_empty() {
            bytes
        } else {
            self.buffer.extend_from_slice(&bytes);
            self.buffer.split().freeze()
        };
        while !rest.is_empty() {
            if !self.advance(&mut rest)? {
                self.buffer.extend_from_slice(&rest);
                break;
            }
        }
        Ok(())
    }

    /// Removes and returns the oldest parsed event; `None` if no event is pending.
    pub fn next_event(&mut self) -> Option<MultipartEvent> {
        self.events.pop_front()
    }

    /// Checks that the form has ended.
    ///
    /// # Errors
    /// Returns `Truncated` if it has not.
    pub fn check_complete(&self) -> Result<(), MultipartError> {
        if self.state == MultipartState::Complete { Ok(()) } else { Err(MultipartError::Truncated) }
    }

    /// Parses the next element; returns false if more bytes are needed.
    fn advance(&mut self, rest: &mut Bytes) -> Result<bool, MultipartError> {
        match self.state {
            MultipartState::Preamble | MultipartState::Content => Ok(self.read_content(rest)),
            MultipartState::Delimited => self.read_delimiter(rest),
            MultipartState::Head => self.read_head(rest),
            MultipartState::Complete => {
                rest.clear();
                Ok(true)
            }
        }
    }

    /// Reads content up to the next delimiter, or to the last byte that cannot belong to one. Returns true if a
    /// delimiter was found.
    fn read_content(&mut self, rest: &mut Bytes) -> bool {
        let (upto, found) = match self.delimiter.find(rest) {
            Some(at) => (at, true),
            None => (rest.len() - self.partial_delimiter(rest), false),
        };
        let content = rest.split_to(upto);
        if self.state == MultipartState::Content {
            if !content.is_empty() {
                self.events.push_back(MultipartEvent::Content(content));
            }
            if found {
                self.events.push_back(MultipartEvent::PartEnd);
            }
        }
        if found {
            *rest = rest.split_off(self.delimiter.needle().len());
            self.state = MultipartState::Delimited;
        }
        found
    }

    /// Returns the number of bytes at the end that may be the start of a delimiter.
    fn partial_delimiter(&self, bytes: &[u8]) -> usize {
        let needle = self.delimiter.needle();
        let tail = bytes.len().saturating_sub(needle.len() - 1);
        let tail = bytes.get(tail..).unwrap_or_default();
        let begins = |at: &usize| tail.get(*at..).is_some_and(|end| needle.starts_with(end));
        memchr::memchr_iter(b'\r', tail).find(begins).map_or(0, |at| tail.len() - at)
    }

    /// Reads the rest of a delimiter line: `--` ends the form; otherwise a part head follows.
    fn read_delimiter(&mut self, rest: &mut Bytes) -> Result<bool, MultipartError> {
        if rest.starts_with(b"--") {
            self.state = MultipartState::Complete;
            rest.clear();
            return Ok(true);
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match (rest.get(padding), rest.get(padding + 1)) {
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), None) => return Ok(false),
            (Some(b'-'), None) if padding == 0 => return Ok(false),
            (None, _) if padding <= MAX_PART_HEAD_BYTES => return Ok(false),
            _ => return Err(MultipartError::InvalidDelimiter),
        }
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(MultipartError::TooManyParts);
        }
        // The line end stays in the input. In a part head without headers, it is the first half of the blank line
        // that ends the head.
        *rest = rest.split_off(padding);
        self.state = MultipartState::Head;
        Ok(true)
    }

    fn read_head(&mut self, rest: &mut Bytes) -> Result<bool, MultipartError> {
        let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n") else {
            return if rest.len() > MAX_PART_HEAD_BYTES {
                Err(MultipartError::HeadTooLong)
            } else {
                Ok(false)
            };
        };
        if end > MAX_PART_HEAD_BYTES {
            return Err(MultipartError::HeadTooLong);
        }
        let head = rest.split_to(end + 4);
        let part = PartHead::parse(head.get(2..).unwrap_or_default()).ok_or(MultipartError::InvalidHead)?;
        self.events.push_back(MultipartEvent::Part(part));
        self.state = MultipartState::Content;
        // The blank line is removed with the head. It cannot be a part of the next delimiter, which begins with a
        // line end of its own even after empty content.
        Ok(true)
    }
}
