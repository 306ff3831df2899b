//! Path of a field in the request, in the notation of the dialect, and the error messages that name it. A path is
//! formatted only if an error needs it.

use crate::json::{Kind, Value};
use penstock_contract::Refusal;
use std::fmt;

/// Notation of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `messages[2].content[0].text`, in the chat dialect.
    Brackets,
    /// `messages.2.content.0.text`, in the messages dialect.
    Dots,
}

#[derive(Clone, Copy, Debug)]
enum Step<'p> {
    Key(&'p str),
    Index(usize),
}

/// Path from the root of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'p> {
    up: Option<&'p Path<'p>>,
    step: Step<'p>,
    style: Style,
}

impl<'p> Path<'p> {
    /// Path of a top-level member.
    pub(crate) const fn top(style: Style, name: &'p str) -> Self {
        Self { up: None, step: Step::Key(name), style }
    }

    /// Path of a member of this object.
    pub(crate) const fn key(&'p self, name: &'p str) -> Self {
        Self { up: Some(self), step: Step::Key(name), style: self.style }
    }

    /// Path of an item of this array.
    pub(crate) const fn index(&'p self, index: usize) -> Self {
        Self { up: Some(self), step: Step::Index(index), style: self.style }
    }

    /// Error for a value of an unexpected type. Names types, never contents.
    pub(crate) fn expected(&self, expected: impl fmt::Display, got: Kind) -> Refusal {
        self.wrong(format_args!("expected {expected}, got {}", got.name()))
    }

    /// Error for a string that is not one of the expected ones.
    pub(crate) fn other_string(&self, expected: impl fmt::Display) -> Refusal {
        self.wrong(format_args!("expected {expected}, got another string"))
    }

    /// Error for a missing required member.
    pub(crate) fn missing(&self, expected: impl fmt::Display) -> Refusal {
        self.wrong(format_args!("expected {expected}, but it is missing"))
    }

    /// Error with a message, which follows the path and a colon.
    pub(crate) fn wrong(&self, sentence: impl fmt::Display) -> Refusal {
        Refusal::invalid(self.to_string(), format!("{self}: {sentence}."))
    }

    /// Error for an unsupported feature that must not be dropped silently.
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

/// Text of the client that may be repeated in an error message: short and an identifier, so that it cannot contain a
/// prompt.
pub(crate) fn speakable(value: &Value<'_>) -> Option<String> {
    let text = value.text();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(plain)).then(|| text.into_owned())
}
