//! Validation errors of a file: each with its line, and all of them as one refusal.

use penstock_core::ApiError;
use serde_json::json;
use std::fmt::Write;

/// Validation error in one line of a batch input file, or in the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Line number from 1; 0 for the whole file.
    pub line: u64,
    /// Stable error code for programs.
    pub code: &'static str,
    /// Invalid field, if the error concerns one.
    pub param: Option<&'static str>,
    /// Message, such as `expected a string, got null`, without a full stop. It quotes no text of the line except short
    /// names.
    pub message: String,
}

impl LineError {
    /// Creates an error without a line number; [`LineError::with_line`] sets the number. Without a number, the error
    /// is about the whole file.
    pub(super) fn new(code: &'static str, param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { line: 0, code, param, message: message.into() }
    }

    /// Sets the line number, from 1.
    pub(super) fn with_line(self, line: u64) -> Self {
        Self { line, ..self }
    }

    /// Returns the error as one sentence, with its line and field.
    #[must_use]
    pub fn to_sentence(&self) -> String {
        let mut text = String::new();
        if self.line > 0 {
            write!(text, "line {}: ", self.line).ok();
        }
        if let Some(param) = self.param {
            write!(text, "{param}: ").ok();
        }
        text + &self.message + "."
    }
}

/// Validation errors of a file: the first ones, and the total number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors {
    /// First errors, by ascending line; at least one, at most [`super::MAX_REPORTED_ERRORS`].
    pub first: Vec<LineError>,
    /// Total number of errors.
    pub count: u64,
}

impl FileErrors {
    /// Returns the refusal of an upload whose form field `field` has the file. Its message contains the first error and
    /// the number of further ones; its details contain the [`Self::first`] errors.
    #[must_use]
    pub fn to_api_error(&self, field: &str) -> ApiError {
        let first = self.first.first().map(LineError::to_sentence).unwrap_or_default();
        let more = match self.count {
            0 | 1 => String::new(),
            2 => " There is one more error.".to_owned(),
            more => format!(" There are {} more errors.", more - 1),
        };
        let errors: Vec<_> = self
            .first
            .iter()
            .map(|mistake| {
                json!({
                    "line": (mistake.line > 0).then_some(mistake.line),
                    "code": mistake.code,
                    "param": mistake.param,
                    "message": mistake.to_sentence(),
                })
            })
            .collect();
        let refusal =
            ApiError::invalid(field, format!("{field}: {first}{more}")).with_details_member("errors", errors);
        match self.first.first() {
            Some(mistake) if mistake.line > 0 => refusal.with_details_member("line", mistake.line),
            _ => refusal,
        }
    }
}
