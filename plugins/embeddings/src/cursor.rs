//! Single-pass JSON cursor for the answers of providers. Embeddings are the largest JSON that passes through the
//! gateway, so each vector is parsed only once.

use penstock_json_scan::json;
use std::ops::Range;

/// Position in a JSON text. Every step returns `None` if the text does not match; the cursor must not be used after
/// that.
pub(crate) struct AnswerJsonCursor<'j> {
    json: &'j [u8],
    at: usize,
}

impl<'j> AnswerJsonCursor<'j> {
    /// Creates a cursor before the first value.
    pub(crate) fn new(json: &'j [u8]) -> Self {
        Self { json, at: json::skip_space(json, 0) }
    }

    /// Returns the first byte of the next value or punctuation mark, without moving; `None` at the end of the text.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    /// Returns the offset of the first byte of the next value.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Returns the bytes from the current position on.
    pub(crate) fn rest(&self) -> &'j [u8] {
        self.json.get(self.at..).unwrap_or_default()
    }

    /// Skips a number of bytes that the caller read from [`Self::rest`], and the space after them.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at = json::skip_space(self.json, self.at.saturating_add(bytes));
    }

    /// Returns true at the end of the text.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.at >= self.json.len()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.skip(1))
    }

    /// Moves behind a value of any type and returns its range.
    pub(crate) fn read_value_range(&mut self) -> Option<Range<usize>> {
        let value = self.at..json::value_end(self.json, self.at)?;
        self.skip(value.len());
        Some(value)
    }

    /// Moves behind a value of any type and returns its bytes.
    pub(crate) fn read_value_bytes(&mut self) -> Option<&'j [u8]> {
        let value = self.read_value_range()?;
        self.json.get(value)
    }

    /// Reads an object: calls `member` with each unescaped key; `member` must read the value.
    pub(crate) fn read_object(
        &mut self,
        mut member: impl FnMut(&str, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        if self.peek()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let end = json::string_end(self.json, self.at)?;
            let key = self.json.get(self.at + 1..end - 1)?;
            self.skip(end - self.at);
            self.take(b':')?;
            member(&json::unescape_lossy(key)?, self)?;
            match self.peek()? {
                b',' => self.skip(1),
                _ => return self.take(b'}'),
            }
        }
    }

    /// Reads an array: calls `element` at each element; `element` must read it.
    pub(crate) fn read_array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.peek()? == b']' {
            return self.take(b']');
        }
        loop {
            element(self)?;
            match self.peek()? {
                b',' => self.skip(1),
                _ => return self.take(b']'),
            }
        }
    }
}
