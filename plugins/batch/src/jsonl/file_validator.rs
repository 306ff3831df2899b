//! Streaming validator of a file: splits chunks into lines, validates each line, and checks that every `custom_id` is
//! unique.

use super::validation_error::{FileErrors, LineError};
use super::{AllowedPaths, BOM, MAX_REPORTED_ERRORS, MAX_REQUESTS, parse_line, strip_line_ending};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum number of bytes by which a buffered line exceeds the maximum line length: a carriage return and a byte order
/// mark.
const LINE_SLACK: usize = 1 + BOM.len();
/// Maximum number of bytes that are skipped beyond the maximum line length, in search of the end of a line that is too
/// long: later lines may have errors to report too. A line without an end within this limit ends the validation.
pub(super) const MAX_SKIPPED_BYTES: usize = 8 << 20;

/// Buffer capacity retained from one line to the next, in bytes.
const RETAINED_CAPACITY: usize = 1 << 20;

/// Summary of a valid file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// Number of requests.
    pub lines: u32,
    /// API path of all requests.
    pub url: &'static str,
}

/// Streaming validator of a file.
#[derive(Debug)]
pub struct FileValidator {
    /// API paths that requests of a batch may have.
    urls: AllowedPaths,
    /// Maximum line length, in bytes, without the line break.
    max_line: usize,
    /// Buffered start of an incomplete line.
    pub(super) buffer: Vec<u8>,
    /// Number of bytes received so far of a line that is too long and is skipped; `None` while no line is skipped.
    skipped: Option<usize>,
    /// Number of complete lines that were read so far.
    line_number: u64,
    /// Number of requests, invalid ones included.
    requests: u64,
    /// Line number of the first blank line since the last request; `None` if there is none. If a further request
    /// follows, the blank line is an error.
    trailing_blank: Option<u64>,
    /// API path and line number of the first valid line.
    url: Option<(&'static str, u64)>,
    /// Line number by digest of the `custom_id`.
    custom_ids: HashMap<u128, u64>,
    /// First errors of the file, at most [`MAX_REPORTED_ERRORS`].
    errors: Vec<LineError>,
    /// Total number of errors.
    count: u64,
}

impl FileValidator {
    /// Creates a validator. Each line must name one of the paths in `urls` and have at most `max_line` bytes, without
    /// its line break.
    #[must_use]
    pub fn new(urls: AllowedPaths, max_line: usize) -> Self {
        Self {
            urls,
            max_line,
            buffer: Vec::new(),
            skipped: None,
            line_number: 0,
            requests: 0,
            trailing_blank: None,
            url: None,
            custom_ids: HashMap::new(),
            errors: Vec::new(),
            count: 0,
        }
    }

    /// Validates the next chunk of the file.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.skipped.take().is_some() {
                self.reject_long_line();
            } else if self.buffer.is_empty() {
                self.validate_line(head);
            } else {
                let mut held = std::mem::take(&mut self.buffer);
                held.extend_from_slice(head);
                self.validate_line(&held);
                // The buffer is reused for the next incomplete line, unless it has become very large.
                if held.capacity() <= RETAINED_CAPACITY {
                    held.clear();
                    self.buffer = held;
                }
            }
        }
        if let Some(passed) = &mut self.skipped {
            *passed = passed.saturating_add(bytes.len());
        } else if self.buffer.len() + bytes.len() > self.max_line.saturating_add(LINE_SLACK) {
            self.skipped = Some(self.buffer.len() + bytes.len());
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// Ends the validation at the end of the file, and returns the number of requests and their path.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn end(mut self) -> Result<FileSummary, FileErrors> {
        if self.skipped.is_some() {
            self.reject_long_line();
        } else if !self.buffer.is_empty() {
            let held = std::mem::take(&mut self.buffer);
            self.validate_line(&held);
        }
        if self.requests == 0 && self.count == 0 {
            self.report_error(
                0,
                LineError::new("empty_file", None, "expected at least one line that is not blank, got none"),
            );
        }
        match (self.url, u32::try_from(self.requests)) {
            (Some((url, _)), Ok(lines)) if self.count == 0 => Ok(FileSummary { lines, url }),
            _ => Err(FileErrors { first: self.errors, count: self.count }),
        }
    }

    /// Returns the memory reserved for an incomplete line, in bytes.
    #[must_use]
    pub const fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Returns true if the file already has an error.
    #[must_use]
    pub const fn has_error(&self) -> bool {
        self.count > 0 || self.skipped.is_some()
    }

    /// Returns true if the current line exceeds the maximum length by more than 8 MiB, so that its end is no longer
    /// searched for.
    #[must_use]
    pub fn exceeds_skip_limit(&self) -> bool {
        self.skipped.is_some_and(|passed| passed > self.max_line.saturating_add(MAX_SKIPPED_BYTES))
    }

    fn report_error(&mut self, number: u64, mistake: LineError) {
        self.count += 1;
        if self.errors.len() < MAX_REPORTED_ERRORS {
            self.errors.push(mistake.with_line(number));
        }
    }

    /// Counts a non-blank line, and reports a blank line before it; returns false if the file has too many requests.
    fn count_request(&mut self) -> bool {
        if let Some(blank) = self.trailing_blank.take() {
            self.report_error(
                blank,
                LineError::new("blank_line", None, "expected a JSON object, got a blank line"),
            );
        }
        self.requests += 1;
        let most = u64::from(MAX_REQUESTS);
        if self.requests == most + 1 {
            let message = format!("expected at most {MAX_REQUESTS} lines, got more");
            self.report_error(self.line_number, LineError::new("too_many_lines", None, message));
        }
        self.requests <= most
    }

    fn reject_long_line(&mut self) {
        self.line_number += 1;
        if self.count_request() {
            let message = format!("expected at most {} bytes, got more", self.max_line);
            self.report_error(self.line_number, LineError::new("line_too_long", None, message));
        }
    }

    fn validate_line(&mut self, bytes: &[u8]) {
        let bytes = strip_line_ending(bytes, self.line_number == 0);
        if bytes.len() > self.max_line {
            return self.reject_long_line();
        }
        self.line_number += 1;
        let number = self.line_number;
        if bytes.trim_ascii().is_empty() {
            self.trailing_blank.get_or_insert(number);
            return;
        }
        if !self.count_request() {
            return;
        }
        match parse_line(bytes, self.urls) {
            Err(mistake) => self.report_error(number, mistake),
            Ok(input) => self.check_unique(number, input.url, &input.custom_id),
        }
    }

    /// Compares the path and the `custom_id` of a valid line with the earlier lines of the file.
    fn check_unique(&mut self, number: u64, url: &'static str, custom_id: &str) {
        match self.url {
            Some((first, line)) if first != url => {
                let message = format!("expected {first} as in line {line}, got {url}");
                self.report_error(number, LineError::new("mixed_urls", Some("url"), message));
            }
            Some(_) => {}
            None => self.url = Some((url, number)),
        }
        match self.custom_ids.entry(digest(custom_id)) {
            std::collections::hash_map::Entry::Occupied(taken) => {
                let message = format!("expected a unique custom_id, but line {} has the same", taken.get());
                self.report_error(number, LineError::new("duplicate_custom_id", Some("custom_id"), message));
            }
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(number);
            }
        }
    }
}

/// Returns a 128-bit digest of a `custom_id`, so that memory does not grow with its length. A collision can only
/// invalidate the client's own file.
fn digest(name: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, name).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
