//! JSON proven in one pass: full validity, a bounded depth and a bounded number
//! of values, and a tape that says where each value of interest stands.
//! Nothing is deserialised; strings stay in the body.

mod number;
mod scan;
mod string;
mod tape;
mod unescape;

pub(crate) use scan::{Bounds, scan};
pub(crate) use string::code_unit;
pub(crate) use tape::{Kind, Node, Tape, Value};
pub(crate) use unescape::{Piece, pieces, unescape};

/// Why bytes are not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The byte.
    pub(crate) at: usize,
    /// What is there.
    pub(crate) what: &'static str,
}

impl Broken {
    pub(crate) const fn new(at: usize, what: &'static str) -> Self {
        Self { at, what }
    }
}

#[cfg(test)]
mod tests;
