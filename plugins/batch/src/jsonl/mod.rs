//! Files of requests: JSON Lines, one request each.
//!
//! [`Lines`] proves a whole file while it is pushed through: what it finds does not depend on how the bytes were
//! cut, and what it holds is bounded by one line of the given length and a digest for each `custom_id`. [`line()`] reads one line
//! without copying its body. A byte order mark, CRLF and blank lines at the end are forgiven.

mod line;
mod lines;
mod mistake;

#[cfg(test)]
mod tests;

pub use line::{InputLine, bare, line};
pub use lines::{Checked, Lines};
pub use mistake::{LineError, Mistakes};

/// Most requests of one file.
pub const MOST_LINES: u32 = 50_000;
/// Longest line that any configuration may allow, in bytes, without its end.
pub const HIGHEST_LINE: usize = 256 << 20;
/// Longest `custom_id`, in bytes.
pub const MOST_CUSTOM_ID: usize = 512;
/// Mistakes that are told one by one; further ones are counted.
pub const MOST_MISTAKES: usize = 20;

/// Paths that lines of batches may ask, in the order in which errors list them.
pub const BATCH_PATHS: Urls =
    &["/v1/chat/completions", "/v1/messages", "/v1/embeddings", "/v1/rerank", "/v1/images/generations"];

/// List of paths that a line may ask.
pub type Urls = &'static [&'static str];

/// What some editors put before a text in UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";
