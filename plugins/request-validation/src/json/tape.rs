//! Validated document: nodes in the order of their first byte, and views of them.

use super::unescape;
use std::borrow::Cow;
use std::ops::Range;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Object,
    Array,
    /// String without escapes.
    String,
    /// String with escapes.
    EscapedString,
    Number,
    True,
    False,
    Null,
}

impl ValueKind {
    /// Name with its article, for error messages.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct TapeNode {
    /// Offset of the first byte in the body.
    pub(crate) start: u32,
    /// Offset after the last byte.
    pub(crate) end: u32,
    /// Index of the next node after this one and its children.
    pub(crate) next: u32,
    pub(crate) kind: ValueKind,
}

/// Validated document.
#[derive(Debug)]
pub(crate) struct JsonTape<'d> {
    pub(crate) text: &'d str,
    pub(crate) nodes: &'d [TapeNode],
}

/// View of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonValue<'d> {
    tape: &'d JsonTape<'d>,
    index: u32,
    node: TapeNode,
}

impl<'d> JsonTape<'d> {
    /// Root value of the document.
    pub(crate) fn root(&'d self) -> Option<JsonValue<'d>> {
        self.value(0)
    }

    fn value(&'d self, index: u32) -> Option<JsonValue<'d>> {
        let node = *self.nodes.get(index as usize)?;
        Some(JsonValue { tape: self, index, node })
    }
}

impl<'d> JsonValue<'d> {
    #[inline]
    pub(crate) fn kind(&self) -> ValueKind {
        self.node.kind
    }

    pub(crate) fn is_null(&self) -> bool {
        self.node.kind == ValueKind::Null
    }

    pub(crate) fn is_object(&self) -> bool {
        self.node.kind == ValueKind::Object
    }

    pub(crate) fn is_array(&self) -> bool {
        self.node.kind == ValueKind::Array
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(self.node.kind, ValueKind::String | ValueKind::EscapedString)
    }

    /// Byte range in the body; strings include their quotes.
    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        self.node.start as usize..self.node.end as usize
    }

    /// Raw text; strings include their quotes.
    pub(crate) fn raw(&self) -> &'d str {
        self.tape.text.get(self.range()).unwrap_or_default()
    }

    /// Raw bytes of a string between its quotes, with escapes; empty for other types.
    pub(crate) fn string_bytes(&self) -> &'d [u8] {
        if self.is_string() { self.raw_inner_text().as_bytes() } else { &[] }
    }

    /// Unescaped text of a string; empty for other types. Copies only if there are escapes.
    #[inline]
    pub(crate) fn text(&self) -> Cow<'d, str> {
        match self.node.kind {
            ValueKind::String => Cow::Borrowed(self.raw_inner_text()),
            ValueKind::EscapedString => Cow::Owned(unescape(self.raw_inner_text())),
            _ => Cow::Borrowed(""),
        }
    }

    /// Raw text between the first and the last byte: a string without its quotes.
    #[inline]
    pub(crate) fn raw_inner_text(&self) -> &'d str {
        let inside = self.node.start as usize + 1..(self.node.end as usize).saturating_sub(1);
        self.tape.text.get(inside).unwrap_or_default()
    }

    /// True if the value is this string.
    #[inline]
    pub(crate) fn is_text(&self, text: &str) -> bool {
        match self.node.kind {
            ValueKind::String => self.string_bytes() == text.as_bytes(),
            ValueKind::EscapedString => self.text() == text,
            _ => false,
        }
    }

    /// True for a string that is empty or only white space.
    pub(crate) fn is_blank(&self) -> bool {
        let mut rest = self.string_bytes();
        while let [b' ', after @ ..] | [b'\\', b'n' | b'r' | b't', after @ ..] = rest {
            rest = after;
        }
        self.is_string() && rest.is_empty()
    }

    /// Values of an array in order; empty for other types.
    pub(crate) fn items(&self) -> ArrayItems<'d> {
        let end = if self.is_array() { self.node.next } else { self.index + 1 };
        ArrayItems { tape: self.tape, at: self.index + 1, end }
    }

    /// Keys and values of an object in order; empty for other types.
    pub(crate) fn members(&self) -> ObjectMembers<'d> {
        let end = if self.is_object() { self.node.next } else { self.index + 1 };
        ObjectMembers(ArrayItems { tape: self.tape, at: self.index + 1, end })
    }

    /// True for an object or array that had not ended when parsing failed.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.node.kind, ValueKind::Object | ValueKind::Array) && self.node.start == self.node.end
    }

    /// Parts of an unfinished object or array: keys (of an object) and values, as far as they were read.
    pub(crate) fn parsed_parts(
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

    /// True if an object or array has no entries.
    pub(crate) fn is_empty_value(&self) -> bool {
        self.raw_inner_text().bytes().all(|byte| byte.is_ascii_whitespace())
    }
}

/// Iterator over the values of an array.
#[derive(Clone, Debug)]
pub(crate) struct ArrayItems<'d> {
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
pub(crate) struct ObjectMembers<'d>(ArrayItems<'d>);

impl<'d> Iterator for ObjectMembers<'d> {
    type Item = (JsonValue<'d>, JsonValue<'d>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}
