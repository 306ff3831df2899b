//! A mistake in a configuration, described so that it can be corrected without a manual: location, value, reason,
//! correction.

use std::fmt;

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
