//! Batch logic: validation of an uploaded file of requests, and the lifecycle of a batch. All functions are pure: time
//! and randomness are arguments, and there is no I/O.
//!
//! - [`jsonl`] validates a file while it arrives in arbitrary chunks, and parses one of its lines.
//! - [`upload_form`] parses the multipart form of an upload.
//! - [`create_request`] parses the request that creates a batch, [`completion_window`] its completion
//!   window.
//! - [`state`] is the lifecycle of a batch, [`completion_bitmap`] the bitmap of its finished lines, [`result_line`] the
//!   format of its output file.
//! - [`retry_policy`] is the retry policy of a line, [`carbon_forecast`] plans the start of a batch by forecast carbon
//!   emissions, [`intensity_history`] records them by hour.

pub mod carbon_forecast;
pub mod completion_bitmap;
pub mod completion_window;
pub mod create_request;
pub mod intensity_history;
pub mod jsonl;
pub mod result_line;
pub mod retry_policy;
pub mod state;
pub mod upload_form;
