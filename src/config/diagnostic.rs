//! A mistake in a configuration, told so that it can be mended without a manual: where, what stands
//! there, why it cannot be, what to write instead.

use std::fmt;

/// One mistake, or one thing to be warned of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file as it was named; empty when no file is to blame.
    pub file: String,
    /// Its line, from 1.
    pub line: Option<usize>,
    /// Path of the key, such as `providers.paris.offers[0].model`; empty for a file that is no TOML.
    pub key: String,
    /// What stands there as it was written; never a secret.
    pub value: Option<String>,
    /// Why it cannot be.
    pub why: String,
    /// What to write.
    pub fix: String,
}

impl fmt::Display for Mistake {
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
        write!(f, "\n    {}", self.why)?;
        if !self.fix.is_empty() {
            write!(f, "\n    {}", self.fix)?;
        }
        Ok(())
    }
}

/// Everything that is wrong, and everything that is only odd.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// With one of these there are no settings.
    pub mistakes: Vec<Mistake>,
    /// It runs in spite of these.
    pub warnings: Vec<Mistake>,
}
