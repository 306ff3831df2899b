//! JSON validation in one pass: it checks the complete syntax and limits the depth and the number of values. The result
//! is a tape: a list with the positions of all values, except those inside values that are not read (opaque ones).
//! Nothing is deserialised; strings stay in the body.

mod interoperable;
mod number;
mod scan;
mod string;
mod unescape;
mod value;

pub use interoperable::is_interoperable;
pub use scan::{StructureLimits, scan};
pub use string::parse_escaped_code_unit;
pub use unescape::{StringPiece, string_pieces, unescape};
pub use value::{JsonTape, JsonValue, TapeNode, ValueKind};

/// Kind of a [`JsonError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// Text that is not JSON.
    Syntax,
    /// Valid JSON with a number beyond the range of a double, or with a lone surrogate.
    Unrepresentable,
    /// Objects and arrays nested deeper than [`StructureLimits::depth`].
    TooDeep,
    /// More keys and values than [`StructureLimits::nodes`].
    TooManyValues,
}

/// Syntax error or exceeded limit in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Offset in the document at which the error was found, in bytes.
    pub offset: usize,
    /// Kind of the error.
    pub kind: JsonErrorKind,
    /// Description of the error.
    pub reason: &'static str,
}

impl JsonError {
    /// Creates a syntax error.
    #[must_use]
    pub const fn syntax(offset: usize, reason: &'static str) -> Self {
        Self { offset, kind: JsonErrorKind::Syntax, reason }
    }

    /// Creates an error for valid JSON with a value that cannot be represented (see
    /// [`JsonErrorKind::Unrepresentable`]).
    #[must_use]
    pub const fn unrepresentable(offset: usize, reason: &'static str) -> Self {
        Self { offset, kind: JsonErrorKind::Unrepresentable, reason }
    }
}

#[cfg(test)]
mod tests;
