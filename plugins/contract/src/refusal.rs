//! A refusal: an error before it has been spoken in a dialect.

use crate::table::{Code, Row};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Why a request is not answered. Holds nothing that a stranger may not read:
/// no key, prompt, provider address or cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The row of the table.
    pub code: Code,
    /// The public sentence; the row's own when nothing more exact is known.
    pub message: Cow<'static, str>,
    /// The field that is to blame, as a path such as `messages[2].content`.
    pub param: Option<String>,
    /// Structured context; `details` on the wire.
    pub details: Map<String, Value>,
    /// Whole seconds for `Retry-After`.
    pub retry_after: Option<u32>,
    /// Only what requests at work hold is in the way: the same request passes as they end.
    pub held: bool,
}

impl Refusal {
    /// A refusal with its row's own sentence.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            message: Cow::Borrowed(code.row().sentence),
            param: None,
            details: Map::new(),
            retry_after: None,
            held: false,
        }
    }

    /// A refusal with a sentence of its own.
    #[must_use]
    pub fn because(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), ..Self::new(code) }
    }

    /// An invalid request that names its field.
    #[must_use]
    pub fn invalid(param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::because(Code::InvalidRequest, message).at(param)
    }

    /// A feature that is not there, naming the field.
    #[must_use]
    pub fn unsupported(param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::because(Code::Unsupported, message).at(param)
    }

    /// More input than fits: both numbers, and no sentence yet (each dialect
    /// has its own, because frameworks search for it).
    #[must_use]
    pub fn context(context_length: u64, input_tokens: u64) -> Self {
        Self::new(Code::ContextLength)
            .with("context_length", context_length)
            .with("input_tokens", input_tokens)
    }

    /// Names the field.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds one detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Sets `Retry-After`, in whole seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Says that it passes as requests at work end: worth another try in a second.
    #[must_use]
    pub fn held(mut self) -> Self {
        self.held = true;
        self.retry_after(1)
    }

    /// The table's row.
    #[must_use]
    pub const fn row(&self) -> Row {
        self.code.row()
    }
}
