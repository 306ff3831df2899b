//! Visit of the objects of an array in one pass over JSON that was validated before.

use super::scan::skip_space;
use std::iter::Peekable;
use std::ops::{ControlFlow, Range};

/// Event of [`visit_array_object_members`]. Keys are raw, without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectMemberEvent<'a> {
    /// Member of an object: key and value.
    Member(&'a [u8], &'a [u8]),
    /// Member of an object in the nested array: key and value.
    NestedMember(&'a [u8], &'a [u8]),
    /// End of an object of the outer array.
    End,
}

/// Visits the members of each object of the array `json`, until `visit` returns [`ControlFlow::Break`]. Returns the
/// value of that break; `None` if there was none. If the value of the member `nested` is an array, the objects in that
/// array are visited instead of the member. Elements that are no objects are skipped.
///
/// Each byte is scanned once, and strings are only searched for their end: the JSON must be valid. Malformed JSON ends
/// the visit silently, or yields pieces of it. `known_strings` are ranges of strings with their quotes, sorted; these
/// strings are skipped without a scan.
pub fn visit_array_object_members<'a, B>(
    json: &'a [u8],
    known_strings: impl Iterator<Item = Range<usize>>,
    nested: &[u8],
    mut visit: impl FnMut(ObjectMemberEvent<'a>) -> ControlFlow<B>,
) -> Option<B> {
    let mut scanner = ValidScanner { json, at: 0, known_strings: known_strings.peekable() };
    let visited = scanner.visit_array(&mut |scanner| {
        scanner
            .visit_members(&mut |scanner, key| {
                if key == nested && scanner.next_byte() == Some(b'[') {
                    return scanner.visit_array(&mut |scanner| {
                        scanner.visit_members(&mut |scanner, key| {
                            Some(visit(ObjectMemberEvent::NestedMember(key, scanner.take_value()?)))
                        })
                    });
                }
                Some(visit(ObjectMemberEvent::Member(key, scanner.take_value()?)))
            })
            .map(|flow| if flow.is_break() { flow } else { visit(ObjectMemberEvent::End) })
    });
    visited.and_then(ControlFlow::break_value)
}

/// Position in valid JSON. Methods return `None` if the JSON turns out to be malformed or ends.
struct ValidScanner<'a, K: Iterator<Item = Range<usize>>> {
    json: &'a [u8],
    at: usize,
    /// Remaining ranges of strings that are skipped without a scan, sorted, with their quotes.
    known_strings: Peekable<K>,
}

/// Outcome of a visit; `None` for malformed JSON.
type Visited<B> = Option<ControlFlow<B>>;

impl<'a, K: Iterator<Item = Range<usize>>> ValidScanner<'a, K> {
    /// Skips white space and returns the byte that follows; `None` at the end.
    fn next_byte(&mut self) -> Option<u8> {
        self.at = skip_space(self.json, self.at);
        self.json.get(self.at).copied()
    }

    /// Skips white space and then `byte`; `None` if another byte or the end follows.
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next_byte()? == byte).then(|| self.at += 1)
    }

    /// Calls `visit` at each object of an array.
    fn visit_array<B>(&mut self, visit: &mut impl FnMut(&mut Self) -> Visited<B>) -> Visited<B> {
        self.expect(b'[')?;
        loop {
            match self.next_byte()? {
                b']' => break,
                b',' => self.at += 1,
                b'{' => {
                    if let ControlFlow::Break(result) = visit(self)? {
                        return Some(ControlFlow::Break(result));
                    }
                }
                _ => self.skip_value()?,
            }
        }
        self.at += 1;
        Some(ControlFlow::Continue(()))
    }

    /// Calls `visit` with each key of an object, at the member's value.
    fn visit_members<B>(&mut self, visit: &mut impl FnMut(&mut Self, &'a [u8]) -> Visited<B>) -> Visited<B> {
        self.expect(b'{')?;
        loop {
            match self.next_byte()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => {
                    let key = self.take_value()?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
                    self.expect(b':')?;
                    if let ControlFlow::Break(result) = visit(self, key)? {
                        return Some(ControlFlow::Break(result));
                    }
                }
            }
        }
        self.at += 1;
        Some(ControlFlow::Continue(()))
    }

    /// Skips a value and returns its bytes.
    fn take_value(&mut self) -> Option<&'a [u8]> {
        self.next_byte()?;
        let start = self.at;
        self.skip_value()?;
        self.json.get(start..self.at)
    }

    /// Skips a value.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.next_byte()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.skip_scalar()?,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Skips a number or one of `true`, `false` and `null`.
    fn skip_scalar(&mut self) -> Option<()> {
        let is_scalar = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.');
        let length = self.json.get(self.at..)?.iter().take_while(is_scalar).count();
        self.at += length;
        (length > 0).then_some(())
    }

    /// Skips a string.
    fn skip_string(&mut self) -> Option<()> {
        while let Some(known) = self.known_strings.next_if(|known| known.start <= self.at) {
            let inside = self.json.get(known.clone()).unwrap_or_default();
            if known.start == self.at && inside.len() > 1 && inside.ends_with(b"\"") {
                self.at = known.end;
                return Some(());
            }
        }
        let mut at = self.at + 1;
        loop {
            at += memchr::memchr2(b'"', b'\\', self.json.get(at..)?)?;
            if self.json.get(at) == Some(&b'"') {
                self.at = at + 1;
                return Some(());
            }
            at += 2;
        }
    }
}
