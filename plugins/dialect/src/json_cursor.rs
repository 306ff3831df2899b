//! Access to values inside validated JSON without deserialization. The functions use the scanner of
//! `penstock_json_scan`, and return slices instead of positions.
//!
//! A string body can be written in another dialect with its escapes unchanged.

use penstock_json_scan::json;
use std::borrow::Cow;

/// Returns the elements of `array`; none if it is not an array.
pub(crate) fn elements(array: &[u8]) -> impl Iterator<Item = &[u8]> {
    json::elements(array).map_while(|range| array.get(range))
}

/// Returns the keys and values of `object`; none if it is not an object.
pub(crate) fn members(object: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, &[u8])> {
    let mut members = json::members(object);
    std::iter::from_fn(move || {
        let (key, value) = members.next_raw()?;
        Some((json::unescape(key)?, value))
    })
}

/// Cursor that enters a value without searching for its end first, so that each byte of deeply nested JSON is read only
/// once.
///
/// On invalid JSON the cursor moves to the end: a visit then stops early, and never panics.
#[derive(Clone)]
pub(crate) struct JsonCursor<'a> {
    json: &'a [u8],
    position: usize,
    is_invalid: bool,
}

impl<'a> JsonCursor<'a> {
    /// Creates a cursor at the start of the value `json`.
    pub(crate) fn new(json: &'a [u8]) -> Self {
        Self { json, position: json::skip_space(json, 0), is_invalid: false }
    }

    /// Returns true if the cursor has reached the end of the text, and all of it was valid JSON.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_invalid && json::skip_space(self.json, self.position) == self.json.len()
    }

    fn abort(&mut self) {
        self.position = self.json.len();
        self.is_invalid = true;
    }

    /// Returns the first byte of the next value.
    pub(crate) fn peek_byte(&self) -> Option<u8> {
        self.json.get(self.position).copied()
    }

    /// Returns the byte offset of the cursor in the JSON text.
    pub(crate) const fn position(&self) -> usize {
        self.position
    }

    /// Returns the text between `start` and the current position.
    pub(crate) fn slice_from(&self, start: usize) -> &'a [u8] {
        self.json.get(start..self.position).unwrap_or_default()
    }

    /// Returns the next value and moves to the position after it; an empty slice if the JSON is invalid.
    pub(crate) fn take_value(&mut self) -> &'a [u8] {
        let start = self.position;
        match json::value_end(self.json, start) {
            Some(end) => {
                self.position = end;
                self.json.get(start..end).unwrap_or_default()
            }
            None => {
                self.abort();
                &[]
            }
        }
    }

    /// Visits the elements of the next value, with their indices. An element that `visit` does not read is skipped. A
    /// value other than an array counts as invalid JSON.
    pub(crate) fn visit_elements<E>(
        &mut self,
        mut visit: impl FnMut(usize, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut index = 0;
        while self.advance(b'[', b']', index == 0) {
            self.visit_value(|cursor| visit(index, cursor))?;
            index += 1;
        }
        Ok(())
    }

    /// Visits the members of the next value, with their names. A member that `visit` does not read is skipped. A value
    /// other than an object counts as invalid JSON.
    pub(crate) fn visit_members<E>(
        &mut self,
        mut visit: impl FnMut(&str, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut first = true;
        while self.advance(b'{', b'}', std::mem::take(&mut first)) {
            let key = parse_string(self.take_value());
            self.position = json::skip_space(self.json, self.position);
            let (Some(key), Some(b':')) = (key, self.peek_byte()) else {
                self.abort();
                return Ok(());
            };
            self.position = json::skip_space(self.json, self.position + 1);
            self.visit_value(|cursor| visit(&key, cursor))?;
        }
        Ok(())
    }

    fn visit_value<E>(&mut self, visit: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let before = self.position;
        visit(self)?;
        if self.position == before {
            self.take_value();
        }
        Ok(())
    }

    /// Moves to the next element or member; returns false after the closing bracket.
    fn advance(&mut self, open: u8, close: u8, first: bool) -> bool {
        self.position = json::skip_space(self.json, self.position);
        let expected = if first { open } else { b',' };
        match self.peek_byte() {
            Some(byte) if byte == expected => self.position = json::skip_space(self.json, self.position + 1),
            Some(byte) if byte == close && !first => {
                self.position += 1;
                return false;
            }
            _ => {
                self.abort();
                return false;
            }
        }
        if first && self.peek_byte() == Some(close) {
            self.position += 1;
            return false;
        }
        self.is_invalid |= self.position >= self.json.len();
        !self.is_invalid
    }
}

/// Returns the body of a JSON string without its quotes, with escapes unchanged.
pub(crate) fn string_body(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Returns the text of a JSON string, unescaped; `None` for other values.
pub(crate) fn parse_string(value: &[u8]) -> Option<Cow<'_, str>> {
    json::unescape(string_body(value)?)
}

/// Parses a non-negative integer; `None` for any other value, or if it does not fit into 64 bits.
pub(crate) fn parse_integer(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Parses an index, which some engines write as a string.
pub(crate) fn parse_index(value: &[u8]) -> Option<u64> {
    parse_integer(string_body(value).unwrap_or(value))
}

/// Parses a number; `None` for a value of another type.
pub(crate) fn parse_float(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Returns true if the value is `null`.
pub(crate) fn is_null(value: &[u8]) -> bool {
    value == b"null"
}

/// Returns true if the value is an array, by its first byte.
pub(crate) fn is_array(value: &[u8]) -> bool {
    value.first() == Some(&b'[')
}

/// Returns true if the value is an object, by its first byte.
pub(crate) fn is_object(value: &[u8]) -> bool {
    value.first() == Some(&b'{')
}

/// Returns true if the value is an object without members.
pub(crate) fn is_empty_object(value: &[u8]) -> bool {
    is_object(value) && members(value).next().is_none()
}

/// Returns the value of the first member with this name; `null` counts as absent.
pub(crate) fn member_value<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(object).find(|(key, _)| key == name).map(|(_, value)| value).filter(|value| !is_null(value))
}

/// Returns true if `text`, the body of a JSON string, is empty or white space only.
pub(crate) fn is_blank_string_body(text: &[u8]) -> bool {
    let may_be = |byte: u8| byte == b' ' || byte == b'\\' || byte > 0x7f;
    text.first().is_none_or(|first| may_be(*first))
        && json::unescape_lossy(text).is_some_and(|text| text.trim().is_empty())
}

/// Removes spaces and the escapes `\n`, `\t` and `\r` from the end of `text`, the body of a JSON string.
pub(crate) fn trim_string_body_end(mut text: &[u8]) -> &[u8] {
    loop {
        if let [rest @ .., b' '] = text {
            text = rest;
        } else if let [rest @ .., b'\\', b'n' | b't' | b'r'] = text {
            // In `\\n` the backslash is itself escaped and the n is a letter.
            let backslashes = rest.iter().rev().take_while(|byte| **byte == b'\\').count();
            if backslashes % 2 == 1 {
                return text;
            }
            text = rest;
        } else {
            return text;
        }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
