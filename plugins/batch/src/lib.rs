//! The batch room: what an uploaded file of requests has to be. Pure: bytes in, lines or mistakes out.
//!
//! - [`jsonl`] proves a file while it arrives, however it is cut, and reads one of its lines.
//! - [`upload`] reads the form that a file comes in.

pub mod jsonl;
pub mod upload;
