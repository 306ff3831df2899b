//! Files of requests in JSON Lines format, one request a line.
//!
//! [`Lines`] validates a file as a stream: its findings do not depend on the chunk boundaries, and its memory is
//! bounded by one line of the maximum length and a digest for each `custom_id`. [`line()`] parses one line without
//! copying its body. A byte order mark, CRLF line breaks and trailing blank lines are accepted.

mod line;
mod lines;
mod mistake;

#[cfg(test)]
mod tests;

pub use line::{InputLine, bare, line};
pub use lines::{Checked, Lines};
pub use mistake::{LineError, Mistakes};

/// Maximum number of requests in a file.
pub const MOST_LINES: u32 = 50_000;
/// Upper bound of the configurable line length, in bytes, without the line break.
pub const HIGHEST_LINE: usize = 256 << 20;
/// Maximum length of a `custom_id`, in bytes.
pub const MOST_CUSTOM_ID: usize = 512;
/// Maximum number of errors reported individually; further ones are only counted.
pub const MOST_MISTAKES: usize = 20;

/// Paths that lines of batches may ask, in the order in which errors list them.
pub const BATCH_PATHS: Urls =
    &["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/rerank", "/v1/images/generations"];

/// List of paths that a line may ask.
pub type Urls = &'static [&'static str];

/// Byte order mark that some editors write before UTF-8 text.
const BOM: &[u8] = b"\xef\xbb\xbf";
