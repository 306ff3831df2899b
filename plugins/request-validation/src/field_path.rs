//! Path of a field in the request, in the notation of the dialect, and the error messages that name it. A path is
//! formatted only if an error needs it.

use penstock_core::ApiError;
use penstock_json_scan::tape::{JsonValue, ValueKind};
use std::fmt;

/// Notation of the path of a request member in error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathStyle {
    /// `messages[2].content[0].text`, in all requests except those of the messages dialect.
    Brackets,
    /// `messages.2.content.0.text`, in the messages dialect.
    Dots,
}

#[derive(Clone, Copy, Debug)]
enum PathStep<'p> {
    Key(&'p str),
    Index(usize),
}

/// Path from the root of the body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldPath<'p> {
    parent: Option<&'p FieldPath<'p>>,
    step: PathStep<'p>,
    style: PathStyle,
}

impl<'p> FieldPath<'p> {
    /// Returns the path of a top-level member.
    pub(crate) const fn root_member(style: PathStyle, name: &'p str) -> Self {
        Self { parent: None, step: PathStep::Key(name), style }
    }

    /// Returns the path of a member of the object at this path.
    pub(crate) const fn member(&'p self, name: &'p str) -> Self {
        Self { parent: Some(self), step: PathStep::Key(name), style: self.style }
    }

    /// Returns the path of an item of the array at this path.
    pub(crate) const fn item(&'p self, index: usize) -> Self {
        Self { parent: Some(self), step: PathStep::Index(index), style: self.style }
    }

    /// Returns the error for a value of an unexpected type. The message names the types and never repeats content.
    pub(crate) fn unexpected_type_error(&self, expected: impl fmt::Display, got: ValueKind) -> ApiError {
        self.invalid_error(format_args!("expected {expected}, got {}", got.name()))
    }

    /// Returns the error for a string other than the expected ones.
    pub(crate) fn unexpected_string_error(&self, expected: impl fmt::Display) -> ApiError {
        self.invalid_error(format_args!("expected {expected}, got another string"))
    }

    /// Returns the error for a missing required member.
    pub(crate) fn missing_error(&self, expected: impl fmt::Display) -> ApiError {
        self.invalid_error(format_args!("expected {expected}, but it is missing"))
    }

    /// Returns an error whose message is the path, a colon and `sentence`.
    pub(crate) fn invalid_error(&self, sentence: impl fmt::Display) -> ApiError {
        ApiError::invalid(self.to_string(), format!("{self}: {sentence}."))
    }

    /// Returns the error for an unsupported feature that must not be dropped silently. The message is the path, a colon
    /// and `sentence`.
    pub(crate) fn unsupported_error(&self, sentence: impl fmt::Display) -> ApiError {
        ApiError::unsupported(self.to_string(), format!("{self}: {sentence}."))
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.parent {
            write!(out, "{up}")?;
        }
        match (self.step, self.style) {
            (PathStep::Key(name), _) if self.parent.is_none() => write!(out, "{name}"),
            (PathStep::Key(name), _) => write!(out, ".{name}"),
            (PathStep::Index(index), PathStyle::Brackets) => write!(out, "[{index}]"),
            (PathStep::Index(index), PathStyle::Dots) => write!(out, ".{index}"),
        }
    }
}

/// Returns the text of a key or string of the client if an error message may contain it: if it is short and an
/// identifier, so that it cannot be a part of a prompt. Otherwise returns `None`.
pub(crate) fn quotable_name(value: &JsonValue<'_>) -> Option<String> {
    let text = value.text();
    is_quotable(&text).then(|| text.into_owned())
}

/// Returns true for a text of the client that an error message may contain; see [`quotable_name`].
pub(crate) fn is_quotable(text: &str) -> bool {
    ApiError::may_quote(text)
}
