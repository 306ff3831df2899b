//! JSON validation in one pass: complete syntax, limited depth and number of values, and a tape with the position of
//! each value of interest. Nothing is deserialised; strings stay in the body.

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
    /// Offset of the error in bytes.
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
