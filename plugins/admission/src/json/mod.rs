//! JSON validation in one pass: complete syntax, limited depth and number of values, and a tape with the position of
//! each value of interest. Nothing is deserialised; strings stay in the body.

mod number;
mod scan;
mod string;
mod tape;
mod unescape;

pub(crate) use scan::{Bounds, scan};
pub(crate) use string::code_unit;
pub(crate) use tape::{Kind, Node, Tape, Value};
pub(crate) use unescape::{Piece, pieces, unescape};

/// Syntax error or exceeded limit in a JSON document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Offset of the error in bytes.
    pub(crate) at: usize,
    /// Description of the error.
    pub(crate) what: &'static str,
}

impl Broken {
    pub(crate) const fn new(at: usize, what: &'static str) -> Self {
        Self { at, what }
    }
}

#[cfg(test)]
mod tests;
