//! Incremental parser of `multipart/form-data`.
//!
//! The events do not depend on the boundaries of the pushed chunks. Contents are slices of these chunks, copied only if
//! a delimiter may start at the end of one; at most the head of one part is buffered.

mod boundary;
mod broken;
mod head;
pub mod upload;

pub use boundary::boundary;
pub use broken::Broken;
pub use head::Part;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;
use std::collections::VecDeque;

/// Maximum number of parts per form.
pub const MOST_PARTS: usize = 64;
/// Maximum bytes of a part head.
pub const MOST_HEAD: usize = 8 << 10;

/// Parser event, in the order of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Start of a part.
    Part(Part),
    /// Bytes of the part's content; never empty.
    Content(Bytes),
    /// End of the part.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// After a delimiter.
    Delimited,
    /// In a part's head.
    Head,
    /// In a part's content.
    Content,
    /// After the closing delimiter.
    Over,
}

/// Parser of one form.
#[derive(Debug)]
pub struct Form {
    delimiter: Finder<'static>,
    state: State,
    /// Bytes of incomplete elements.
    held: BytesMut,
    events: VecDeque<Event>,
    parts: usize,
}

impl Form {
    /// Returns a parser for this boundary (see [`boundary`]).
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}");
        Self {
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            state: State::Preamble,
            // The first delimiter has no preceding line, so one is assumed.
            held: BytesMut::from("\r\n"),
            events: VecDeque::new(),
            parts: 0,
        }
    }

    /// Parses the next bytes.
    ///
    /// # Errors
    /// Returns the error if the form is invalid.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), Broken> {
        let mut rest = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(&bytes);
            self.held.split().freeze()
        };
        while !rest.is_empty() {
            if !self.step(&mut rest)? {
                self.held.extend_from_slice(&rest);
                break;
            }
        }
        Ok(())
    }

    /// Returns the next event.
    pub fn told(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Checks that the form has ended.
    ///
    /// # Errors
    /// Returns `Truncated` if it has not.
    pub fn end(&self) -> Result<(), Broken> {
        if self.state == State::Over { Ok(()) } else { Err(Broken::Truncated) }
    }

    /// Parses the next element; returns false if more bytes are needed.
    fn step(&mut self, rest: &mut Bytes) -> Result<bool, Broken> {
        match self.state {
            State::Preamble | State::Content => Ok(self.content(rest)),
            State::Delimited => self.delimited(rest),
            State::Head => self.head(rest),
            State::Over => {
                rest.clear();
                Ok(true)
            }
        }
    }

    /// Reads content up to the next delimiter, or to the last byte that cannot belong to one.
    fn content(&mut self, rest: &mut Bytes) -> bool {
        let (upto, found) = match self.delimiter.find(rest) {
            Some(at) => (at, true),
            None => (rest.len() - self.begun(rest), false),
        };
        let content = rest.split_to(upto);
        if self.state == State::Content {
            if !content.is_empty() {
                self.events.push_back(Event::Content(content));
            }
            if found {
                self.events.push_back(Event::Whole);
            }
        }
        if found {
            *rest = rest.split_off(self.delimiter.needle().len());
            self.state = State::Delimited;
        }
        found
    }

    /// Number of bytes at the end that may be the start of a delimiter.
    fn begun(&self, bytes: &[u8]) -> usize {
        let needle = self.delimiter.needle();
        let tail = bytes.len().saturating_sub(needle.len() - 1);
        let tail = bytes.get(tail..).unwrap_or_default();
        let begins = |at: &usize| tail.get(*at..).is_some_and(|end| needle.starts_with(end));
        memchr::memchr_iter(b'\r', tail).find(begins).map_or(0, |at| tail.len() - at)
    }

    /// Reads the rest of a delimiter line: `--` ends the form; otherwise a part head follows.
    fn delimited(&mut self, rest: &mut Bytes) -> Result<bool, Broken> {
        if rest.starts_with(b"--") {
            self.state = State::Over;
            rest.clear();
            return Ok(true);
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match (rest.get(padding), rest.get(padding + 1)) {
            (Some(b'\r'), Some(b'\n')) => {}
            (Some(b'\r'), None) => return Ok(false),
            (Some(b'-'), None) if padding == 0 => return Ok(false),
            (None, _) if padding <= MOST_HEAD => return Ok(false),
            _ => return Err(Broken::Delimiter),
        }
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(Broken::TooManyParts);
        }
        // The line end stays in the input, because it also ends a head without headers.
        *rest = rest.split_off(padding);
        self.state = State::Head;
        Ok(true)
    }

    fn head(&mut self, rest: &mut Bytes) -> Result<bool, Broken> {
        let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n") else {
            return if rest.len() > MOST_HEAD { Err(Broken::HeadTooLong) } else { Ok(false) };
        };
        if end > MOST_HEAD {
            return Err(Broken::HeadTooLong);
        }
        let head = rest.split_to(end + 4);
        let part = Part::read(head.get(2..).unwrap_or_default()).ok_or(Broken::Head)?;
        self.events.push_back(Event::Part(part));
        self.state = State::Content;
        // If the content is empty, its delimiter starts with a line end of its own after the head.
        Ok(true)
    }
}
