//! Output buffer of a prompt, limited by the budget of its count.

use crate::budget::{CountHalt, TokenMeter};
use std::io::{self, Write};

/// Buffer for the text of a prompt that a template writes.
pub(super) struct PromptBuffer<'s> {
    text: Vec<u8>,
    /// Limit on the bytes of the prompt.
    max_bytes: usize,
    meter: TokenMeter<'s>,
    /// Reason why writing ended early; `None` if it did not.
    pub(super) halt: Option<CountHalt>,
}

impl<'s> PromptBuffer<'s> {
    /// Creates an empty buffer for at most `max_bytes` bytes.
    pub(super) const fn new(max_bytes: usize, meter: TokenMeter<'s>) -> Self {
        Self { text: Vec::new(), max_bytes, meter, halt: None }
    }

    /// Returns the written text.
    pub(super) fn into_text(self) -> String {
        String::from_utf8(self.text).unwrap_or_default()
    }
}

impl Write for PromptBuffer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let over = self.text.len().saturating_add(bytes.len()) > self.max_bytes;
        let checked = if over { Err(CountHalt::OverBudget) } else { self.meter.check() };
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
