//! A mistake in a configuration, described so that it can be corrected without a manual: location, value, reason,
//! correction.

use super::changes::is_provider_address_key;
use std::fmt::{self, Write as _};

/// One mistake in the configuration, or a warning about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File name as the operator wrote it; empty if the mistake belongs to no file.
    pub file: String,
    /// Line number, from 1; `None` if the mistake belongs to no line.
    pub line: Option<usize>,
    /// Path of the key, such as `providers.paris.offers[0].model`; empty for a file that is not TOML.
    pub key: String,
    /// Value as written; never a secret. `None` if no value is shown.
    pub value: Option<String>,
    /// Reason why the value is invalid.
    pub reason: String,
    /// Sentence that tells how to correct the value; empty if there is none.
    pub remedy: String,
}

impl Diagnostic {
    /// Returns the diagnostic for the log of a gateway, which has no addresses of providers: they are `***`. A URL below
    /// `providers` counts as one, whatever its key.
    #[must_use]
    pub fn for_log(&self) -> Self {
        let is_url = |value: &str| value.contains("://") && self.key.starts_with("providers");
        let is_address = |value: &String| is_provider_address_key(&self.key) || is_url(value);
        let value =
            self.value.as_ref().map(|value| if is_address(value) { "***".to_owned() } else { value.clone() });
        Self { value, ..self.clone() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            if !self.file.is_empty() {
                f.write_str(": ")?;
            }
            f.write_str(&self.key)?;
        }
        if let Some(value) = &self.value {
            write!(f, " = {value}")?;
        }
        write!(f, "\n    {}", self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, "\n    {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Mistakes and warnings of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    /// Mistakes; if there is one, there are no settings.
    pub mistakes: Vec<Diagnostic>,
    /// Warnings; the configuration is valid.
    pub warnings: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Formats the mistakes and their consequence, such as `nothing was started`.
    #[must_use]
    pub fn format_mistakes(&self, consequence: &str) -> String {
        // Warnings are left out: some exist only because a block with a mistake was skipped.
        format_mistakes(&self.mistakes, consequence)
    }

    /// Formats the mistakes for the log of a gateway, without addresses of providers.
    #[must_use]
    pub fn format_mistakes_for_log(&self, consequence: &str) -> String {
        let mistakes: Vec<Diagnostic> = self.mistakes.iter().map(Diagnostic::for_log).collect();
        format_mistakes(&mistakes, consequence)
    }
}

/// Formats mistakes, their number and their consequence.
pub fn format_mistakes(mistakes: &[impl fmt::Display], consequence: &str) -> String {
    let mut text = String::new();
    for mistake in mistakes {
        let _ = writeln!(text, "{mistake}\n");
    }
    let count = match mistakes.len() {
        1 => "One mistake".to_owned(),
        count => format!("{count} mistakes"),
    };
    let _ = write!(text, "{count} in the configuration: {consequence}.");
    text
}
