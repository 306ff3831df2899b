//! What is wrong with a file: each mistake with its line, and all of them as one refusal.

use penstock_contract::Refusal;
use serde_json::json;
use std::fmt::Write;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// Its line, from 1 on; 0 is the whole file.
    pub line: u64,
    /// What kind of mistake, for programs.
    pub code: &'static str,
    /// The field that is to blame, if it is one.
    pub param: Option<&'static str>,
    /// What was expected. Repeats nothing of a line but short names.
    pub message: String,
}

impl LineError {
    pub(super) fn new(code: &'static str, param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { line: 0, code, param, message: message.into() }
    }

    pub(super) fn at(self, line: u64) -> Self {
        Self { line, ..self }
    }

    /// The mistake with its line and its field in front, as one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
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

/// All mistakes of a file: the first of them, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    /// The first, by rising line; at least one, at most [`super::MOST_MISTAKES`].
    pub first: Vec<LineError>,
    /// How many there are.
    pub count: u64,
}

impl Mistakes {
    /// The refusal of a file of this form field: the first mistake as its sentence, all that are told in its
    /// details.
    #[must_use]
    pub fn refusal(&self, field: &str) -> Refusal {
        let first = self.first.first().map(LineError::sentence).unwrap_or_default();
        let more = match self.count {
            0 | 1 => String::new(),
            2 => " One more line is wrong.".to_owned(),
            more => format!(" {} more lines are wrong.", more - 1),
        };
        let told: Vec<_> = self
            .first
            .iter()
            .map(|mistake| {
                json!({
                    "line": (mistake.line > 0).then_some(mistake.line),
                    "code": mistake.code,
                    "param": mistake.param,
                    "message": mistake.sentence(),
                })
            })
            .collect();
        let refusal = Refusal::invalid(field, format!("{field}: {first}{more}")).with("errors", told);
        match self.first.first() {
            Some(mistake) if mistake.line > 0 => refusal.with("line", mistake.line),
            _ => refusal,
        }
    }
}
