//! JSON validation in one pass: complete syntax, limited depth and number of values, and a tape with the position of
//! each value of interest. Nothing is deserialised; strings stay in the body.

mod number;
mod scan;
mod string;
mod tape;
mod unescape;

pub(crate) use scan::{StructureLimits, scan};
pub(crate) use string::code_unit;
pub(crate) use tape::{JsonTape, JsonValue, TapeNode, ValueKind};
pub(crate) use unescape::{StringPiece, string_pieces, unescape};

/// Syntax error or exceeded limit in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// Offset of the error in bytes.
    pub(crate) offset: usize,
    /// Description of the error.
    pub(crate) reason: &'static str,
}

impl JsonError {
    pub(crate) const fn new(offset: usize, reason: &'static str) -> Self {
        Self { offset, reason }
    }
}

#[cfg(test)]
mod tests;
