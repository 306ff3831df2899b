//! Files of requests in JSON Lines format, one request a line.
//!
//! [`FileValidator`] validates a file as a stream: its findings do not depend on the chunk boundaries, and its memory
//! is bounded by one line of the maximum length and a digest for each `custom_id`. [`parse_line()`] parses one line
//! without copying its body. A byte order mark, CRLF line breaks and trailing blank lines are accepted.

mod file_validator;
mod line;
mod validation_error;

#[cfg(test)]
mod tests;

pub use file_validator::{FileSummary, FileValidator};
pub use line::{InputLine, parse_line, strip_line_ending};
pub use validation_error::{FileErrors, LineError};

/// Maximum number of requests in a file.
pub const MAX_REQUESTS: u32 = 50_000;
/// Upper bound of the configurable line length, in bytes, without the line break.
pub const MAX_LINE_LIMIT_BYTES: usize = 256 << 20;
/// Maximum length of a `custom_id`, in bytes.
pub const MAX_CUSTOM_ID_BYTES: usize = 512;
/// Maximum number of errors reported individually; further ones are only counted.
pub const MAX_REPORTED_ERRORS: usize = 20;

/// API paths that the lines of a batch may name, in the order in which errors list them.
pub const BATCH_PATHS: AllowedPaths = &[
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/images/generations",
];

/// List of the API paths that a line may name.
pub type AllowedPaths = &'static [&'static str];

/// Byte order mark that some editors write before UTF-8 text.
const BOM: &[u8] = b"\xef\xbb\xbf";
