//! Validated document: nodes in the order of their first byte, and views of them.

use super::string::MAX_BASE64_TAIL_BYTES;
use super::unescape;
use std::borrow::Cow;
use std::ops::Range;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Object.
    Object,
    /// Array.
    Array,
    /// String without escapes.
    String,
    /// String with escapes.
    EscapedString,
    /// Number.
    Number,
    /// Literal `true`.
    True,
    /// Literal `false`.
    False,
    /// Literal `null`.
    Null,
}

impl ValueKind {
    /// Returns the name of the type with its article, for error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String | Self::EscapedString => "a string",
            Self::Number => "a number",
            Self::True | Self::False => "a boolean",
            Self::Null => "null",
        }
    }
}

/// Node of the tape; 16 bytes, because there may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapeNode {
    /// Offset of the first byte in the body.
    pub start: u32,
    /// Offset after the last byte, in the body.
    pub end: u32,
    /// Index of the next node after this one and its children.
    pub next: u32,
    /// Type of the value.
    pub kind: ValueKind,
    /// For a long string, offset after the opening quote from which all bytes are base64 characters, except for the
    /// last 64; 0 if this is unknown.
    pub base64_from: u16,
}

/// JSON document that is validated and indexed by nodes.
#[derive(Debug)]
pub struct JsonTape<'d> {
    /// Text of the document.
    pub text: &'d str,
    /// Nodes of the document's values, as recorded by [`super::scan`].
    pub nodes: &'d [TapeNode],
}

/// View of one value in a [`JsonTape`].
#[derive(Clone, Copy, Debug)]
pub struct JsonValue<'d> {
    tape: &'d JsonTape<'d>,
    index: u32,
    node: TapeNode,
}

impl<'d> JsonTape<'d> {
    /// Returns the root value of the document; `None` if nothing was recorded.
    pub fn root(&'d self) -> Option<JsonValue<'d>> {
        self.value(0)
    }

    fn value(&'d self, index: u32) -> Option<JsonValue<'d>> {
        let node = *self.nodes.get(index as usize)?;
        Some(JsonValue { tape: self, index, node })
    }
}

impl<'d> JsonValue<'d> {
    /// Returns the type of the value.
    #[inline]
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        self.node.kind
    }

    /// Returns true for `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.node.kind == ValueKind::Null
    }

    /// Returns true for an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.node.kind == ValueKind::Object
    }

    /// Returns true for an array.
    #[must_use]
    pub fn is_array(&self) -> bool {
        self.node.kind == ValueKind::Array
    }

    /// Returns true for a string, with or without escapes.
    #[must_use]
    pub fn is_string(&self) -> bool {
        matches!(self.node.kind, ValueKind::String | ValueKind::EscapedString)
    }

    /// Returns the byte range in the document; strings include their quotes.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.node.start as usize..self.node.end as usize
    }

    /// Returns the raw text; strings include their quotes.
    pub fn raw(&self) -> &'d str {
        self.tape.text.get(self.range()).unwrap_or_default()
    }

    /// Returns the raw bytes of a string between its quotes, with escapes; empty for other types.
    pub fn string_bytes(&self) -> &'d [u8] {
        if self.is_string() { self.raw_inner_text().as_bytes() } else { &[] }
    }

    /// Returns the range in [`JsonValue::string_bytes`] of a long string whose bytes the scan found to be letters,
    /// digits, `+` and `/`; empty if this is unknown.
    pub fn base64_range(&self) -> Range<usize> {
        match usize::from(self.node.base64_from) {
            0 => 0..0,
            from => from..self.string_bytes().len().saturating_sub(MAX_BASE64_TAIL_BYTES).max(from),
        }
    }

    /// Returns the byte ranges in the document, sorted, of the strings of at least `min_bytes` bytes, quotes included:
    /// this value, and the keys and values inside it.
    pub fn long_string_ranges(&self, min_bytes: usize) -> impl Iterator<Item = Range<usize>> + use<'d> {
        let nodes = self.tape.nodes.get(self.index as usize..self.node.next as usize).unwrap_or_default();
        let ranges =
            nodes.iter().filter(|node| matches!(node.kind, ValueKind::String | ValueKind::EscapedString));
        ranges
            .map(|node| node.start as usize..node.end as usize)
            .filter(move |range| range.len() >= min_bytes)
    }

    /// Returns the unescaped text of a string; empty for other types. Copies only if there are escapes.
    #[inline]
    pub fn text(&self) -> Cow<'d, str> {
        match self.node.kind {
            ValueKind::String => Cow::Borrowed(self.raw_inner_text()),
            ValueKind::EscapedString => Cow::Owned(unescape(self.raw_inner_text())),
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the raw text between the first and the last byte: of a string without its quotes, of an object or array
    /// without its brackets.
    #[inline]
    pub fn raw_inner_text(&self) -> &'d str {
        let inside = self.node.start as usize + 1..(self.node.end as usize).saturating_sub(1);
        self.tape.text.get(inside).unwrap_or_default()
    }

    /// Returns true if the value is a string whose unescaped text is `text`.
    #[inline]
    pub fn equals_text(&self, text: &str) -> bool {
        match self.node.kind {
            ValueKind::String => self.string_bytes() == text.as_bytes(),
            ValueKind::EscapedString => self.text() == text,
            _ => false,
        }
    }

    /// Returns true for a string that is empty or has only blanks and the escapes `\n`, `\r` and `\t`.
    pub fn is_blank(&self) -> bool {
        let mut rest = self.string_bytes();
        while let [b' ', after @ ..] | [b'\\', b'n' | b'r' | b't', after @ ..] = rest {
            rest = after;
        }
        self.is_string() && rest.is_empty()
    }

    /// Returns the values of an array in order; none for other types.
    pub fn items(&self) -> ArrayItems<'d> {
        let end = if self.is_array() { self.node.next } else { self.index + 1 };
        ArrayItems { tape: self.tape, at: self.index + 1, end }
    }

    /// Returns the keys and values of an object in order; none for other types.
    pub fn members(&self) -> ObjectMembers<'d> {
        let end = if self.is_object() { self.node.next } else { self.index + 1 };
        ObjectMembers(ArrayItems { tape: self.tape, at: self.index + 1, end })
    }

    /// Returns true for an object or array that had not ended when parsing failed.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.node.kind, ValueKind::Object | ValueKind::Array) && self.node.start == self.node.end
    }

    /// Returns the entries of an unfinished object or array as (key, value), as far as they were read. The key is
    /// `None` in an array, and the value is `None` if it was not read.
    pub fn partial_entries(
        &self,
    ) -> impl Iterator<Item = (Option<JsonValue<'d>>, Option<JsonValue<'d>>)> + use<'d> {
        let mut items = ArrayItems { tape: self.tape, at: self.index + 1, end: self.tape.nodes.len() as u32 };
        let keyed = self.is_object();
        std::iter::from_fn(move || {
            if !keyed {
                return items.next().map(|value| (None, Some(value)));
            }
            let key = items.next()?;
            Some((Some(key), items.next()))
        })
    }

    /// Returns true if an object or array has no entries.
    pub fn has_no_entries(&self) -> bool {
        self.raw_inner_text().bytes().all(|byte| byte.is_ascii_whitespace())
    }
}

/// Iterator over the values of an array.
#[derive(Clone, Debug)]
pub struct ArrayItems<'d> {
    tape: &'d JsonTape<'d>,
    at: u32,
    end: u32,
}

impl<'d> Iterator for ArrayItems<'d> {
    type Item = JsonValue<'d>;

    #[inline]
    fn next(&mut self) -> Option<JsonValue<'d>> {
        if self.at >= self.end {
            return None;
        }
        let value = self.tape.value(self.at)?;
        self.at = value.node.next;
        Some(value)
    }
}

/// Iterator over the keys and values of an object.
#[derive(Clone, Debug)]
pub struct ObjectMembers<'d>(ArrayItems<'d>);

impl<'d> Iterator for ObjectMembers<'d> {
    type Item = (JsonValue<'d>, JsonValue<'d>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}
