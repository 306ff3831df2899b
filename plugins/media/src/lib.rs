//! The media room: what goes in and out of models that draw and of models that
//! listen. Sounds are pushed through as they arrive and never held;
//! drawings and transcripts of every shape of provider become the contract's.
//!
//! Nothing here reads a file or a socket, and no bytes, however broken, make it
//! panic or hold more than its stated bounds.
//!
//! To add a shape of provider: a line in the `SHAPES` of [`picture`] or
//! [`speech`], a folder of golden cases in `testdata`, and code only where it
//! differs from those there.

mod measured;
pub mod picture;
pub mod sound;
pub mod speech;
