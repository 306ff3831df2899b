//! A whole file, pushed through: cut into lines wherever its pieces end, each line proven, the names compared.

use super::mistake::{LineError, Mistakes};
use super::{BOM, MOST_LINES, MOST_MISTAKES, Urls, bare, line};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A held line that exceeds the longest one by more than this is too long, whatever follows: a line's end, and what an
/// editor put before the first.
const AROUND: usize = 1 + BOM.len();
/// Bytes beyond the longest line that are passed over of one that is too long: behind it may be others with mistakes to
/// tell. A longer one has no end that anybody waits for.
pub(super) const MOST_PASSED: usize = 8 << 20;

/// Room that is kept from one line to the next, in bytes.
const KEPT: usize = 1 << 20;

/// A file that is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// How many requests.
    pub lines: u32,
    /// What all of them ask.
    pub url: &'static str,
}

/// A file on its way through.
#[derive(Debug)]
pub struct Lines {
    /// What its lines may ask.
    urls: Urls,
    /// Longest line, in bytes, without its end.
    longest: usize,
    /// The beginning of a line whose end has not come.
    pub(super) held: Vec<u8>,
    /// The line is too long, and passed over up to its end: so many bytes of it so far.
    passing: Option<usize>,
    /// Lines that have ended.
    number: u64,
    /// Requests among them, those with mistakes included.
    requests: u64,
    /// Blank lines that nothing has followed yet: the first of them.
    blank: Option<u64>,
    /// What the first sound line asks, and which line that is.
    url: Option<(&'static str, u64)>,
    /// Names by their digest, and the line of each.
    names: HashMap<u128, u64>,
    mistakes: Vec<LineError>,
    count: u64,
}

impl Lines {
    /// A file of which nothing has come, and whose lines may ask one of `urls` in at most `longest` bytes.
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

    /// Takes the next bytes.
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
                // The room of a long line is not kept for short ones.
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

    /// There is no more.
    ///
    /// # Errors
    /// What is wrong with the file.
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

    /// Bytes of memory that are reserved for a line whose end has not come.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.held.capacity()
    }

    /// Whether there is a mistake, whatever follows.
    #[must_use]
    pub const fn are_wrong(&self) -> bool {
        self.count > 0 || self.passing.is_some()
    }

    /// Whether the line that has begun is longer than anybody reads on for.
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

    /// Another line that is no blank one; false if there are too many.
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

    /// Holds a sound line against those before it.
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
                let message =
                    format!("expected a unique custom_id, but line {} has the same", taken.get());
                self.wrong(number, LineError::new("duplicate_custom_id", Some("custom_id"), message));
            }
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(number);
            }
        }
    }
}

/// 128 bits that stand for a name, so that memory does not grow with the names' length. Whoever finds two names
/// of one digest spoils a file of their own.
fn digest(name: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, name).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}
