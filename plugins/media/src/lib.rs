//! Requests and answers of models that generate images, transcribe audio or generate speech. Uploaded audio is streamed
//! through and never buffered; images and transcripts of all provider APIs are converted into the types of the
//! gateway's API.
//!
//! This crate reads no file or socket. No input, even a malformed one, causes a panic or exceeds the memory limits.
//!
//! To add a provider API, add an adapter to the table in [`image`] or [`speech`], a folder of golden cases in
//! `testdata`, and code only for the differences.

pub mod audio;
pub mod image;
mod measured_energy;
pub mod speech;
