//! The batch room: what an uploaded file of requests has to be, and how a batch of them lives. Pure: bytes, values,
//! time and chance in; lines, states and moments out.
//!
//! - [`jsonl`] proves a file while it arrives, however it is cut, and reads one of its lines.
//! - [`upload`] reads the form that a file comes in.
//! - [`create`] reads what a client asks for, [`window`] until when.
//! - [`state`] is a batch's life, [`done`] which of its lines have their result, [`result`] how that is written.
//! - [`again`] says when a line is asked once more, [`grid`] when a batch is best begun.

pub mod again;
pub mod create;
pub mod done;
pub mod grid;
pub mod jsonl;
pub mod result;
pub mod state;
pub mod upload;
pub mod window;
