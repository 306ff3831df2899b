//! A proven document: values in the order of their first byte, and views on them.

use super::unescape;
use std::borrow::Cow;
use std::ops::Range;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    /// A string whose bytes are its text.
    String,
    /// A string with escapes.
    Escaped,
    Number,
    True,
    False,
    Null,
}

impl Kind {
    /// With its article, for sentences.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String | Self::Escaped => "a string",
            Self::Number => "a number",
            Self::True | Self::False => "a boolean",
            Self::Null => "null",
        }
    }
}

/// One value of the tape. Sixteen bytes, because there may be many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its first byte in the body.
    pub(crate) start: u32,
    /// The byte after its last.
    pub(crate) end: u32,
    /// The node after it and all that is inside it.
    pub(crate) next: u32,
    pub(crate) kind: Kind,
}

/// The document.
#[derive(Debug)]
pub(crate) struct Tape<'d> {
    pub(crate) text: &'d str,
    pub(crate) nodes: &'d [Node],
}

/// A view on one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'d> {
    tape: &'d Tape<'d>,
    index: u32,
    node: Node,
}

impl<'d> Tape<'d> {
    /// The value of the whole document.
    pub(crate) fn root(&'d self) -> Option<Value<'d>> {
        self.value(0)
    }

    fn value(&'d self, index: u32) -> Option<Value<'d>> {
        let node = *self.nodes.get(index as usize)?;
        Some(Value { tape: self, index, node })
    }
}

impl<'d> Value<'d> {
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.node.kind
    }

    pub(crate) fn is_null(&self) -> bool {
        self.node.kind == Kind::Null
    }

    pub(crate) fn is_object(&self) -> bool {
        self.node.kind == Kind::Object
    }

    pub(crate) fn is_array(&self) -> bool {
        self.node.kind == Kind::Array
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(self.node.kind, Kind::String | Kind::Escaped)
    }

    /// Where it stands in the body; strings with their quotes.
    #[inline]
    pub(crate) fn range(&self) -> Range<usize> {
        self.node.start as usize..self.node.end as usize
    }

    /// Its bytes as they came; strings with their quotes.
    pub(crate) fn raw(&self) -> &'d str {
        self.tape.text.get(self.range()).unwrap_or_default()
    }

    /// A string's bytes between the quotes, escapes as they came; empty for anything else.
    pub(crate) fn body(&self) -> &'d [u8] {
        if self.is_string() { self.quoted().as_bytes() } else { &[] }
    }

    /// A string's text; empty for anything else. Copies only where there are escapes.
    #[inline]
    pub(crate) fn text(&self) -> Cow<'d, str> {
        match self.node.kind {
            Kind::String => Cow::Borrowed(self.quoted()),
            Kind::Escaped => Cow::Owned(unescape(self.quoted())),
            _ => Cow::Borrowed(""),
        }
    }

    /// What stands between the first and the last byte: a string without its quotes.
    #[inline]
    pub(crate) fn quoted(&self) -> &'d str {
        let inside = self.node.start as usize + 1..(self.node.end as usize).saturating_sub(1);
        self.tape.text.get(inside).unwrap_or_default()
    }

    /// Whether it is this string.
    #[inline]
    pub(crate) fn is(&self, text: &str) -> bool {
        match self.node.kind {
            Kind::String => self.body() == text.as_bytes(),
            Kind::Escaped => self.text() == text,
            _ => false,
        }
    }

    /// A string of white space alone, or of nothing.
    pub(crate) fn is_blank(&self) -> bool {
        let mut rest = self.body();
        while let [b' ', after @ ..] | [b'\\', b'n' | b'r' | b't', after @ ..] = rest {
            rest = after;
        }
        self.is_string() && rest.is_empty()
    }

    /// The values of an array in order; nothing for anything else.
    pub(crate) fn items(&self) -> Items<'d> {
        let end = if self.is_array() { self.node.next } else { self.index + 1 };
        Items { tape: self.tape, at: self.index + 1, end }
    }

    /// Keys and values of an object in order; nothing for anything else.
    pub(crate) fn members(&self) -> Members<'d> {
        let end = if self.is_object() { self.node.next } else { self.index + 1 };
        Members(Items { tape: self.tape, at: self.index + 1, end })
    }

    /// An object or array that had not ended when the document broke.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.node.kind, Kind::Object | Kind::Array) && self.node.start == self.node.end
    }

    /// The parts of an object or array that had not ended when the document
    /// broke: keys (of an object) and values, as far as they were read.
    pub(crate) fn broken_parts(
        &self,
    ) -> impl Iterator<Item = (Option<Value<'d>>, Option<Value<'d>>)> + use<'d> {
        let mut items = Items { tape: self.tape, at: self.index + 1, end: self.tape.nodes.len() as u32 };
        let keyed = self.is_object();
        std::iter::from_fn(move || {
            if !keyed {
                return items.next().map(|value| (None, Some(value)));
            }
            let key = items.next()?;
            Some((Some(key), items.next()))
        })
    }

    /// An object or array with nothing in it.
    pub(crate) fn is_hollow(&self) -> bool {
        self.quoted().bytes().all(|byte| byte.is_ascii_whitespace())
    }
}

/// The values of an array.
#[derive(Clone, Debug)]
pub(crate) struct Items<'d> {
    tape: &'d Tape<'d>,
    at: u32,
    end: u32,
}

impl<'d> Iterator for Items<'d> {
    type Item = Value<'d>;

    #[inline]
    fn next(&mut self) -> Option<Value<'d>> {
        if self.at >= self.end {
            return None;
        }
        let value = self.tape.value(self.at)?;
        self.at = value.node.next;
        Some(value)
    }
}

/// Keys and values of an object.
#[derive(Clone, Debug)]
pub(crate) struct Members<'d>(Items<'d>);

impl<'d> Iterator for Members<'d> {
    type Item = (Value<'d>, Value<'d>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}
