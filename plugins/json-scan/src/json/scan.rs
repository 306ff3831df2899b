//! Scanner for members and elements, which skips their content.

use crate::block::{has_must_escape_bytes, load_vectors, must_escape_lanes};
use std::borrow::Cow;
use std::ops::Range;
use wide::u8x16;

/// Maximum nesting depth.
pub const MAX_DEPTH: u32 = 128;

/// Returns the position of the first byte at or after `offset` that is not JSON white space.
#[must_use]
pub fn skip_space(json: &[u8], mut offset: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\n' | b'\r') = json.get(offset) {
        offset += 1;
    }
    offset
}

/// Returns the bytes without surrounding white space.
#[must_use]
pub fn trim(json: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let start = json.iter().position(|byte| !is_space(byte)).unwrap_or(json.len());
    let end = json.iter().rposition(|byte| !is_space(byte)).map_or(start, |at| at + 1);
    json.get(start..end).unwrap_or_default()
}

/// Returns the position after the closing quote of the string that opens at `offset`.
///
/// Returns `None` if there is no string or it does not end, an escape is invalid, or the string contains a control
/// character. The escape of a lone surrogate is accepted.
#[must_use]
pub fn string_end(json: &[u8], offset: usize) -> Option<usize> {
    if json.get(offset) != Some(&b'"') {
        return None;
    }
    let mut offset = offset + 1;
    loop {
        offset += plain_run_length(json.get(offset..)?);
        match *json.get(offset)? {
            b'"' => return Some(offset + 1),
            b'\\' => offset = escape_end(json, offset)?,
            _ => return None,
        }
    }
}

/// Returns the number of bytes at the start that are no quote, backslash or control character.
#[inline]
pub(super) fn plain_run_length(bytes: &[u8]) -> usize {
    let mut run = 0;
    // Most strings end in the first 16 bytes; long ones are scanned 64 bytes at a time.
    while let Some(start) = bytes.get(run..).and_then(<[u8]>::first_chunk::<16>) {
        let special = must_escape_lanes(u8x16::new(*start)).to_bitmask();
        if special != 0 {
            return run + special.trailing_zeros() as usize;
        }
        run += 16;
        run += plain_blocks(bytes.get(run..).unwrap_or_default());
    }
    let rest = bytes.get(run..).unwrap_or_default();
    run + rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(rest.len())
}

/// Returns the number of bytes in the 64-byte blocks at the start that have no quote, backslash or control character.
#[inline]
fn plain_blocks(bytes: &[u8]) -> usize {
    bytes.as_chunks().0.iter().take_while(|block| !has_must_escape_bytes(load_vectors(block))).count() * 64
}

/// Returns the position after the escape whose backslash is at `offset`; `None` if the escape is invalid or incomplete.
/// The escape of a lone surrogate is accepted.
pub(super) fn escape_end(json: &[u8], offset: usize) -> Option<usize> {
    match json.get(offset + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(offset + 2),
        b'u' => {
            let digits = json.get(offset + 2..offset + 6)?;
            digits.iter().all(u8::is_ascii_hexdigit).then_some(offset + 6)
        }
        _ => None,
    }
}

/// Returns the position after the value that starts at `offset` (without leading white space).
///
/// Returns `None` if it is not a JSON value or is nested deeper than [`MAX_DEPTH`].
#[must_use]
pub fn value_end(json: &[u8], offset: usize) -> Option<usize> {
    value_end_within(json, offset, MAX_DEPTH)
}

fn value_end_within(json: &[u8], offset: usize, depth: u32) -> Option<usize> {
    match json.get(offset)? {
        b'"' => string_end(json, offset),
        b'{' => {
            let depth = depth.checked_sub(1)?;
            let mut offset = skip_space(json, offset + 1);
            if json.get(offset) == Some(&b'}') {
                return Some(offset + 1);
            }
            loop {
                offset = skip_space(json, string_end(json, offset)?);
                if json.get(offset) != Some(&b':') {
                    return None;
                }
                offset = value_end_within(json, skip_space(json, offset + 1), depth)?;
                offset = skip_space(json, offset);
                match json.get(offset)? {
                    b',' => offset = skip_space(json, offset + 1),
                    b'}' => return Some(offset + 1),
                    _ => return None,
                }
            }
        }
        b'[' => {
            let depth = depth.checked_sub(1)?;
            let mut offset = skip_space(json, offset + 1);
            if json.get(offset) == Some(&b']') {
                return Some(offset + 1);
            }
            loop {
                offset = skip_space(json, value_end_within(json, offset, depth)?);
                match json.get(offset)? {
                    b',' => offset = skip_space(json, offset + 1),
                    b']' => return Some(offset + 1),
                    _ => return None,
                }
            }
        }
        b't' => literal_end(json, offset, b"true"),
        b'f' => literal_end(json, offset, b"false"),
        b'n' => literal_end(json, offset, b"null"),
        _ => number_end(json, offset),
    }
}

fn literal_end(json: &[u8], offset: usize, literal: &[u8]) -> Option<usize> {
    let end = offset + literal.len();
    (json.get(offset..end)? == literal).then_some(end)
}

fn digits_end(json: &[u8], mut offset: usize) -> Option<usize> {
    let start = offset;
    while json.get(offset).is_some_and(u8::is_ascii_digit) {
        offset += 1;
    }
    (offset > start).then_some(offset)
}

fn number_end(json: &[u8], mut offset: usize) -> Option<usize> {
    if json.get(offset) == Some(&b'-') {
        offset += 1;
    }
    offset = if json.get(offset) == Some(&b'0') { offset + 1 } else { digits_end(json, offset)? };
    if json.get(offset) == Some(&b'.') {
        offset = digits_end(json, offset + 1)?;
    }
    if let Some(b'e' | b'E') = json.get(offset) {
        offset += 1;
        if let Some(b'+' | b'-') = json.get(offset) {
            offset += 1;
        }
        offset = digits_end(json, offset)?;
    }
    Some(offset)
}

/// Member of an object, as ranges of its key (with quotes) and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpan {
    /// Range of the key with its quotes.
    pub key: Range<usize>,
    /// Range of the value without surrounding white space.
    pub value: Range<usize>,
}

/// Iterator over the members of an object. See [`members`].
#[derive(Clone, Debug)]
pub struct MemberIter<'a> {
    json: &'a [u8],
    at: usize,
    state: IterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IterState {
    Start,
    InProgress,
    Done,
    Broken,
}

/// Returns an iterator over the members of the object `json`, which may have surrounding white space.
///
/// Lazy: bytes after the last returned member are not scanned. After the end of the iteration,
/// [`MemberIter::is_complete`] returns true if all of `json` was one well-formed object. Names may repeat.
#[must_use]
pub fn members(json: &[u8]) -> MemberIter<'_> {
    MemberIter { json, at: skip_space(json, 0), state: IterState::Start }
}

impl<'a> MemberIter<'a> {
    /// Returns true once the end of the object was reached and only white space follows it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == IterState::Done && skip_space(self.json, self.at) == self.json.len()
    }

    /// Returns the position after the object's end; `None` before it was reached, and if the object is malformed.
    #[must_use]
    pub fn end_offset(&self) -> Option<usize> {
        (self.state == IterState::Done).then_some(self.at)
    }

    /// Returns the next member as (raw key without quotes, value); `None` after the last one, and if the object is
    /// malformed.
    pub fn next_raw(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let member = self.next()?;
        let key = self.json.get(member.key.start + 1..member.key.end - 1)?;
        Some((key, self.json.get(member.value)?))
    }

    /// Returns the next member as (unescaped key, value); `None` after the last one, and if the object is malformed.
    /// Each lone surrogate in the key becomes U+FFFD; a key that is not UTF-8 becomes an empty string.
    pub fn next_unescaped(&mut self) -> Option<(Cow<'a, str>, &'a [u8])> {
        let (key, value) = self.next_raw()?;
        Some((super::unescape_lossy(key).unwrap_or_default(), value))
    }

    fn advance(&mut self) -> Option<MemberSpan> {
        let json = self.json;
        let mut at = self.at;
        if self.state == IterState::Start {
            if json.get(at) != Some(&b'{') {
                return None;
            }
            at = skip_space(json, at + 1);
            if json.get(at) == Some(&b'}') {
                self.at = at + 1;
                self.state = IterState::Done;
                return None;
            }
        } else {
            match json.get(at)? {
                b',' => at = skip_space(json, at + 1),
                b'}' => {
                    self.at = at + 1;
                    self.state = IterState::Done;
                    return None;
                }
                _ => return None,
            }
        }
        let key = at..string_end(json, at)?;
        at = skip_space(json, key.end);
        if json.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(json, at + 1);
        let value = at..value_end_within(json, at, MAX_DEPTH - 1)?;
        self.at = skip_space(json, value.end);
        self.state = IterState::InProgress;
        Some(MemberSpan { key, value })
    }
}

impl Iterator for MemberIter<'_> {
    type Item = MemberSpan;

    fn next(&mut self) -> Option<MemberSpan> {
        if matches!(self.state, IterState::Done | IterState::Broken) {
            return None;
        }
        let member = self.advance();
        if member.is_none() && self.state != IterState::Done {
            self.state = IterState::Broken;
        }
        member
    }
}

/// Iterator over the elements of an array. See [`elements`].
#[derive(Clone, Debug)]
pub struct ElementIter<'a> {
    json: &'a [u8],
    at: usize,
    state: IterState,
}

/// Returns an iterator over the ranges of the elements of the array `json`; lazy like [`members`].
#[must_use]
pub fn elements(json: &[u8]) -> ElementIter<'_> {
    ElementIter { json, at: skip_space(json, 0), state: IterState::Start }
}

impl ElementIter<'_> {
    /// Returns true once the end of the array was reached and only white space follows it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == IterState::Done && skip_space(self.json, self.at) == self.json.len()
    }

    fn advance(&mut self) -> Option<Range<usize>> {
        let json = self.json;
        let mut at = self.at;
        let first = self.state == IterState::Start;
        if first {
            if json.get(at) != Some(&b'[') {
                return None;
            }
            at = skip_space(json, at + 1);
        }
        match json.get(at)? {
            b']' => {
                self.at = at + 1;
                self.state = IterState::Done;
                return None;
            }
            b',' if !first => at = skip_space(json, at + 1),
            _ if first => {}
            _ => return None,
        }
        let value = at..value_end_within(json, at, MAX_DEPTH - 1)?;
        self.at = skip_space(json, value.end);
        self.state = IterState::InProgress;
        Some(value)
    }
}

impl Iterator for ElementIter<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if matches!(self.state, IterState::Done | IterState::Broken) {
            return None;
        }
        let element = self.advance();
        if element.is_none() && self.state != IterState::Done {
            self.state = IterState::Broken;
        }
        element
    }
}

#[cfg(test)]
mod tests {
    use super::plain_run_length;

    #[test]
    fn a_run_ends_at_the_first_special_byte_wherever_it_is() {
        for length in [0, 1, 7, 8, 9, 63, 64, 65, 72, 127, 128, 129, 200] {
            assert_eq!(plain_run_length(&vec![b'a'; length]), length);
            for at in 0..length {
                for special in [0, 0x1f, b'"', b'\\'] {
                    let mut text = vec![0x80; length];
                    if let Some(tail) = text.get_mut(at..) {
                        tail.fill(special);
                    }
                    assert_eq!(plain_run_length(&text), at, "{length} {at} {special}");
                }
            }
            for plain in [0x20, 0x21, 0x5b, 0x7f, 0x80, 0xff] {
                assert_eq!(plain_run_length(&vec![plain; length]), length, "{length} {plain}");
            }
        }
    }
}
