//! A secret: has no Display, prints as `***`, is read out on purpose only.

use std::fmt;
use std::sync::Arc;

/// Text that must not be seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes it in.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Reads it out, for the one header or digest it is meant for.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
