//! `multipart/form-data`, pushed through piece by piece.
//!
//! What comes out does not depend on how the bytes were cut. Contents are slices
//! of what was pushed, copied only where a delimiter may begin at a piece's end;
//! no more than one part's head is ever held.

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

/// Most parts of one form.
pub const MOST_PARTS: usize = 64;
/// Most bytes of one part's head.
pub const MOST_HEAD: usize = 8 << 10;

/// What a form consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A part begins.
    Part(Part),
    /// Bytes of its content; never empty.
    Content(Bytes),
    /// The part is whole.
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first delimiter.
    Preamble,
    /// Right behind a delimiter.
    Delimited,
    /// In a part's head.
    Head,
    /// In a part's content.
    Content,
    /// Behind the last delimiter.
    Over,
}

/// A form on its way through.
#[derive(Debug)]
pub struct Form {
    delimiter: Finder<'static>,
    state: State,
    /// Bytes that were pushed and cannot be told yet.
    held: BytesMut,
    events: VecDeque<Event>,
    parts: usize,
}

impl Form {
    /// A form with this boundary (see [`boundary`]).
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}");
        Self {
            delimiter: Finder::new(delimiter.as_bytes()).into_owned(),
            state: State::Preamble,
            // The first delimiter has no line before it: as if there were one.
            held: BytesMut::from("\r\n"),
            events: VecDeque::new(),
            parts: 0,
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// It is no form.
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

    /// What has been told since.
    pub fn told(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The body is over.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn end(&self) -> Result<(), Broken> {
        if self.state == State::Over { Ok(()) } else { Err(Broken::Truncated) }
    }

    /// Goes on by one element; false if there is not enough to tell.
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

    /// Up to the next delimiter, or as far as none can begin.
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

    /// Bytes at the end that may be the beginning of a delimiter.
    fn begun(&self, bytes: &[u8]) -> usize {
        let needle = self.delimiter.needle();
        let tail = bytes.len().saturating_sub(needle.len() - 1);
        let tail = bytes.get(tail..).unwrap_or_default();
        let begins = |at: &usize| tail.get(*at..).is_some_and(|end| needle.starts_with(end));
        memchr::memchr_iter(b'\r', tail).find(begins).map_or(0, |at| tail.len() - at)
    }

    /// `--` ends the form; else the line ends, and a head follows.
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
        // The line's end stays: it ends a head without headers too.
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
        // An empty content's delimiter shares no byte with the head: it begins with a line's end of its own.
        Ok(true)
    }
}
