//! Requests and answers of models that generate images and of models that transcribe audio. Audio is streamed through
//! and never buffered; images and transcripts of every provider shape are converted into the contract's types.
//!
//! This crate reads no file or socket, and no input, however broken, causes a panic or exceeds its memory limits.
//!
//! To add a provider shape: a line in the `SHAPES` of [`image`] or [`speech`], a folder of golden cases in
//! `testdata`, and code only for the differences.

pub mod audio;
pub mod image;
mod measured_energy;
pub mod speech;
