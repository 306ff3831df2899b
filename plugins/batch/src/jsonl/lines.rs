//! Streaming validator of a file: splits chunks into lines, validates each line, and checks that every `custom_id` is
//! unique.

use super::mistake::{LineError, Mistakes};
use super::{BOM, MOST_LINES, MOST_MISTAKES, Urls, bare, line};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Maximum excess in bytes of a buffered line over the longest line: a line break and a byte order mark.
const AROUND: usize = 1 + BOM.len();
/// Bytes beyond the longest line that are skipped of a line that is too long, in search of its end: later lines may
/// have errors to report. A longer line ends the validation.
pub(super) const MOST_PASSED: usize = 8 << 20;

/// Buffer capacity retained from one line to the next, in bytes.
const KEPT: usize = 1 << 20;

/// Summary of a valid file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Number of requests.
    pub lines: u32,
    /// API path of all requests.
    pub url: &'static str,
}

/// Streaming validator of a file.
#[derive(Debug)]
pub struct Lines {
    /// Allowed API paths.
    urls: Urls,
    /// Maximum line length, in bytes, without the line break.
    longest: usize,
    /// Buffered start of an incomplete line.
    pub(super) held: Vec<u8>,
    /// Number of bytes so far of a line that is too long and is skipped up to its end.
    passing: Option<usize>,
    /// Number of complete lines.
    number: u64,
    /// Number of requests, invalid ones included.
    requests: u64,
    /// First of the trailing blank lines.
    blank: Option<u64>,
    /// API path and line number of the first valid line.
    url: Option<(&'static str, u64)>,
    /// Line number by digest of the `custom_id`.
    names: HashMap<u128, u64>,
    mistakes: Vec<LineError>,
    count: u64,
}

impl Lines {
    /// Creates a validator; lines may use one of `urls` and have at most `longest` bytes.
    #[must_use]
    pub fn new(urls: Urls, longest: usize) -> Self {
        Self {
            urls,
            longest,
            held: Vec::new(),
            passing: None,
            number: 0,
            requests: 0,
            blank: None,
            url: None,
            names: HashMap::new(),
            mistakes: Vec::new(),
            count: 0,
        }
    }

    /// Validates the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (head, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.passing.take().is_some() {
                self.too_long();
            } else if self.held.is_empty() {
                self.line(head);
            } else {
                let mut held = std::mem::take(&mut self.held);
                held.extend_from_slice(head);
                self.line(&held);
                // The large buffer of a long line is not retained for short ones.
                if held.capacity() <= KEPT {
                    held.clear();
                    self.held = held;
                }
            }
        }
        if let Some(passed) = &mut self.passing {
            *passed = passed.saturating_add(bytes.len());
        } else if self.held.len() + bytes.len() > self.longest.saturating_add(AROUND) {
            self.passing = Some(self.held.len() + bytes.len());
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Returns the errors of the file.
    pub fn end(mut self) -> Result<Checked, Mistakes> {
        if self.passing.is_some() {
            self.too_long();
        } else if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.line(&held);
        }
        if self.requests == 0 && self.count == 0 {
            self.wrong(
                0,
                LineError::new("empty_file", None, "expected at least one line, got an empty file"),
            );
        }
        match (self.url, u32::try_from(self.requests)) {
            (Some((url, _)), Ok(lines)) if self.count == 0 => Ok(Checked { lines, url }),
            _ => Err(Mistakes { first: self.mistakes, count: self.count }),
        }
    }

    /// Returns the memory reserved for an incomplete line, in bytes.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Returns true if the file already has an error.
    #[must_use]
    pub const fn are_wrong(&self) -> bool {
        self.count > 0 || self.passing.is_some()
    }

    /// Returns true if the current line is too long to search for its end.
    #[must_use]
    pub fn are_endless(&self) -> bool {
        self.passing.is_some_and(|passed| passed > self.longest.saturating_add(MOST_PASSED))
    }

    fn wrong(&mut self, number: u64, mistake: LineError) {
        self.count += 1;
        if self.mistakes.len() < MOST_MISTAKES {
            self.mistakes.push(mistake.at(number));
        }
    }

    /// Counts a non-blank line; returns false if there are too many.
    fn request(&mut self) -> bool {
        if let Some(blank) = self.blank.take() {
            self.wrong(blank, LineError::new("blank_line", None, "expected a JSON object, got a blank line"));
        }
        self.requests += 1;
        let most = u64::from(MOST_LINES);
        if self.requests == most + 1 {
            let message = format!("expected at most {MOST_LINES} lines, got more");
            self.wrong(self.number, LineError::new("too_many_lines", None, message));
        }
        self.requests <= most
    }

    fn too_long(&mut self) {
        self.number += 1;
        if self.request() {
            let message = format!("expected at most {} bytes, got more", self.longest);
            self.wrong(self.number, LineError::new("line_too_long", None, message));
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        let bytes = bare(bytes, self.number == 0);
        if bytes.len() > self.longest {
            return self.too_long();
        }
        self.number += 1;
        let number = self.number;
        if bytes.trim_ascii().is_empty() {
            self.blank.get_or_insert(number);
            return;
        }
        if !self.request() {
            return;
        }
        match line(bytes, self.urls) {
            Err(mistake) => self.wrong(number, mistake),
            Ok(input) => self.compare(number, input.url, &input.custom_id),
        }
    }

    /// Compares the path and `custom_id` of a valid line with those of earlier lines.
    fn compare(&mut self, number: u64, url: &'static str, custom_id: &str) {
        match self.url {
            Some((first, line)) if first != url => {
                let message = format!("expected {first} as in line {line}, got {url}");
                self.wrong(number, LineError::new("mixed_urls", Some("url"), message));
            }
            Some(_) => {}
            None => self.url = Some((url, number)),
        }
        match self.names.entry(digest(custom_id)) {
            std::collections::hash_map::Entry::Occupied(taken) => {
                let message = format!("expected a unique custom_id, but line {} has the same", taken.get());
                self.wrong(number, LineError::new("duplicate_custom_id", Some("custom_id"), message));
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
