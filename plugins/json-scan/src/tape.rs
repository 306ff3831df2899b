//! JSON validation in one pass: it checks the complete syntax and limits the depth and the number of values. The result
//! is a tape: a list with the positions of all values, except those inside values that are not read (opaque ones).
//! Nothing is deserialised; strings stay in the body.

mod number;
mod scan;
mod string;
mod unescape;
mod value;

pub use scan::{StructureLimits, scan};
pub use string::code_unit;
pub use unescape::{StringPiece, string_pieces, unescape};
pub use value::{JsonTape, JsonValue, TapeNode, ValueKind};

/// Syntax error or exceeded limit in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Offset in the document at which the error was found, in bytes.
    pub offset: usize,
    /// Description of the error.
    pub reason: &'static str,
}

impl JsonError {
    /// Creates an error.
    #[must_use]
    pub const fn new(offset: usize, reason: &'static str) -> Self {
        Self { offset, reason }
    }
}

#[cfg(test)]
mod tests;
