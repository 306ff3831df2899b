//! Batch logic: validation of an uploaded file of requests, and the lifecycle of a batch. All functions are pure: time
//! and randomness are arguments, and there is no I/O.
//!
//! - [`jsonl`] validates a file while it arrives in arbitrary chunks, and parses one of its lines.
//! - [`upload`] parses the multipart form of an upload.
//! - [`create`] parses the request that creates a batch, [`window`] its completion window.
//! - [`state`] is the lifecycle of a batch, [`done`] the bitmap of its finished lines, [`result`] the format of its
//!   output file.
//! - [`again`] is the retry policy of a line, [`grid`] plans the start of a batch by grid emissions.

pub mod carbon_forecast;
pub mod completion_bitmap;
pub mod completion_window;
pub mod create_request;
pub mod jsonl;
pub mod result_line;
pub mod retry_policy;
pub mod state;
pub mod upload_form;
