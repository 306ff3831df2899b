//! Output buffer of a prompt, limited by the budget of its count.

use crate::budget::{Halt, Meter};
use std::io::{self, Write};

/// Prompt under construction.
pub(super) struct Paper<'s> {
    text: Vec<u8>,
    /// Limit on the bytes of the prompt.
    most: usize,
    meter: Meter<'s>,
    /// Reason for which writing ended early.
    pub(super) halt: Option<Halt>,
}

impl<'s> Paper<'s> {
    /// Creates an empty buffer for at most `most` bytes.
    pub(super) const fn new(most: usize, meter: Meter<'s>) -> Self {
        Self { text: Vec::new(), most, meter, halt: None }
    }

    /// Returns the written text.
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.text).unwrap_or_default()
    }
}

impl Write for Paper<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let over = self.text.len().saturating_add(bytes.len()) > self.most;
        let checked = if over { Err(Halt::Over) } else { self.meter.check() };
        if let Err(halt) = checked {
            self.halt = Some(halt);
            return Err(io::Error::other("the count has ended"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
