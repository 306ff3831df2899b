//! Where in the request something stands, as the dialect's users write it, and
//! the sentences that name it. A path costs nothing until it is spoken.

use crate::json::{Kind, Value};
use penstock_contract::Refusal;
use std::fmt;

/// How steps are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `messages[2].content[0].text`, the chat dialect's.
    Brackets,
    /// `messages.2.content.0.text`, the messages dialect's.
    Dots,
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Key(&'p str),
    Index(usize),
}

/// A path from the top of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'p> {
    up: Option<&'p Path<'p>>,
    step: Step<'p>,
    style: Style,
}

impl<'p> Path<'p> {
    /// A top-level member.
    pub(crate) const fn top(style: Style, name: &'p str) -> Self {
        Self { up: None, step: Step::Key(name), style }
    }

    /// A member of the object here.
    pub(crate) const fn key(&'p self, name: &'p str) -> Self {
        Self { up: Some(self), step: Step::Key(name), style: self.style }
    }

    /// An item of the array here.
    pub(crate) const fn index(&'p self, index: usize) -> Self {
        Self { up: Some(self), step: Step::Index(index), style: self.style }
    }

    /// A value of another type than expected. Names types, never contents.
    pub(crate) fn expected(&self, expected: impl fmt::Display, got: Kind) -> Refusal {
        self.wrong(format_args!("expected {expected}, got {}", got.name()))
    }

    /// A string that is none of those expected.
    pub(crate) fn other_string(&self, expected: impl fmt::Display) -> Refusal {
        self.wrong(format_args!("expected {expected}, got another string"))
    }

    /// A member that must be there.
    pub(crate) fn missing(&self, expected: impl fmt::Display) -> Refusal {
        self.wrong(format_args!("expected {expected}, but it is missing"))
    }

    /// Anything else that is wrong with it, in words that go on after the path and a colon.
    pub(crate) fn wrong(&self, sentence: impl fmt::Display) -> Refusal {
        Refusal::invalid(self.to_string(), format!("{self}: {sentence}."))
    }

    /// Something that cannot be honoured and is not dropped in silence.
    pub(crate) fn unsupported(&self, sentence: impl fmt::Display) -> Refusal {
        Refusal::unsupported(self.to_string(), format!("{self}: {sentence}."))
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            write!(out, "{up}")?;
        }
        match (self.step, self.style) {
            (Step::Key(name), _) if self.up.is_none() => write!(out, "{name}"),
            (Step::Key(name), _) => write!(out, ".{name}"),
            (Step::Index(index), Style::Brackets) => write!(out, "[{index}]"),
            (Step::Index(index), Style::Dots) => write!(out, ".{index}"),
        }
    }
}

/// A word of the client's own that may be repeated to it: short and an
/// identifier, so that no prompt can be in it.
pub(crate) fn speakable(value: &Value<'_>) -> Option<String> {
    let text = value.text();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(plain)).then(|| text.into_owned())
}
