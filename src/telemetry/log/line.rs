//! Builder of a log line: a JSON object or `key=value` pairs, safe for any value.

use super::{MAX_RETAINED_BYTES, writer};
use crate::config::settings::LogFormat;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::Level;

/// Initial capacity of a line's buffer in bytes, which is enough for most lines.
const INITIAL_LINE_BYTES: usize = 512;

thread_local! {
    /// Cache of the formatted time: the Unix second of the thread's last line, and its text.
    static TIME_CACHE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    /// Buffer of the thread's last line, reused for the next line.
    static LINE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// True if lines are JSON objects, and false if they are `key=value` pairs.
static JSON: AtomicBool = AtomicBool::new(true);

/// Sets the format of the lines that follow.
pub(super) fn set_format(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

/// Log line under construction.
pub(super) struct LogLine {
    text: Vec<u8>,
    json: bool,
}

impl LogLine {
    /// Begins a line in the configured format.
    pub(super) fn new(level: Level, event: &str) -> Self {
        let format = if JSON.load(Ordering::Relaxed) { LogFormat::Json } else { LogFormat::Text };
        Self::with_format(format, level, event)
    }

    /// Begins a line in this format.
    pub(super) fn with_format(format: LogFormat, level: Level, event: &str) -> Self {
        let json = format == LogFormat::Json;
        let mut text = LINE_BUFFER.take();
        text.clear();
        text.reserve(INITIAL_LINE_BYTES);
        let mut line = Self { text, json };
        if json {
            line.text.push(b'{');
        }
        line.time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let level = match level {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        line.literal("level", level);
        line.text("event", event);
        line
    }

    /// Appends the time in the format of RFC 3339, UTC, with milliseconds. The text of a second is cached for further
    /// lines of the thread.
    fn time(&mut self, since: Duration) {
        TIME_CACHE.with_borrow_mut(|(of, text)| {
            if *of != since.as_secs() || text.is_empty() {
                (*of, *text) = (since.as_secs(), crate::time::format::format_rfc3339(since.as_secs()));
            }
            self.member("time", false, if self.json { b"\"" } else { b"" });
            self.text.extend_from_slice(text.trim_end_matches('Z').as_bytes());
        });
        self.text.push(b'.');
        self.thousandths(since.subsec_millis());
        self.text.extend_from_slice(if self.json { b"Z\"" } else { b"Z" });
    }

    /// Appends a member: its key and its value, which is a string if `quoted`.
    fn member(&mut self, key: &str, quoted: bool, value: &[u8]) {
        self.begin_member(key, quoted, value.len());
        self.text.extend_from_slice(value);
        self.end_member(quoted);
    }

    /// Appends the key of a member with the punctuation around it, and reserves capacity for the value.
    fn begin_member(&mut self, key: &str, quoted: bool, length: usize) {
        let (before, between): (&[u8], &[u8]) = match (self.json, quoted) {
            (true, true) => (b",\"", b"\":\""),
            (true, false) => (b",\"", b"\":"),
            (false, _) => (b" ", b"="),
        };
        // The first member has no separator before it.
        let before = before.get(usize::from(self.text.len() <= 1)..).unwrap_or_default();
        self.text.reserve(key.len() + length + 8);
        for part in [before, key.as_bytes(), between] {
            self.text.extend_from_slice(part);
        }
    }

    fn end_member(&mut self, quoted: bool) {
        if self.json && quoted {
            self.text.push(b'"');
        }
    }

    /// Appends a value that is a constant of the program and needs no escaping.
    fn literal(&mut self, key: &str, value: &'static str) {
        self.member(key, true, value.as_bytes());
    }

    /// Appends a text value. Characters that would end the value or the line are replaced.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        self.begin_member(key, true, value.len());
        push_escaped(&mut self.text, value);
        self.end_member(true);
    }

    /// Appends a value that displays itself as text.
    pub(super) fn displayed(&mut self, key: &str, value: &dyn Debug) {
        self.begin_member(key, true, 0);
        write!(EscapedText(&mut self.text), "{value:?}").ok();
        self.end_member(true);
    }

    /// Appends a value that displays itself as a JSON number.
    pub(super) fn decimal(&mut self, key: &str, value: &dyn Debug) {
        self.begin_member(key, false, 0);
        write!(EscapedText(&mut self.text), "{value:?}").ok();
    }

    /// Appends an integer.
    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.member(key, false, itoa::Buffer::new().format(value).as_bytes());
    }

    /// Appends a boolean.
    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.member(key, false, if value { b"true" } else { b"false" });
    }

    /// Appends milliseconds with three decimals.
    pub(super) fn millis(&mut self, key: &str, value: f64) {
        // Rounding gives the exact microseconds, because even a century of them has fewer digits than an `f64` can
        // represent.
        let micros = (value * 1_000.0).round() as u64;
        self.number(key, micros / 1_000);
        self.text.push(b'.');
        self.thousandths(u32::try_from(micros % 1_000).unwrap_or(0));
    }

    fn thousandths(&mut self, value: u32) {
        for digit in [value / 100, value / 10 % 10, value % 10] {
            self.text.push(b'0' + u8::try_from(digit).unwrap_or(0));
        }
    }

    /// Ends the line and returns its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.text.extend_from_slice(if self.json { b"}\n" } else { b"\n" });
        self.text
    }

    /// Ends the line and sends it to the log writer.
    pub(super) fn send(self) {
        let line = self.finish();
        writer::send_line(&line);
        if line.capacity() <= MAX_RETAINED_BYTES {
            LINE_BUFFER.set(line);
        }
    }
}

/// Writer of text that needs escapes.
struct EscapedText<'l>(&'l mut Vec<u8>);

impl Write for EscapedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        push_escaped(self.0, text);
        Ok(())
    }
}

/// Appends text. Quotes and backslashes become apostrophes, and control characters become spaces, so that nothing in it
/// ends a line or a JSON string.
fn push_escaped(line: &mut Vec<u8>, text: &str) {
    // Without an early exit, the compiler vectorizes the comparison.
    let plain = text.bytes().fold(true, |plain, b| plain & b.is_ascii_graphic() & (b != b'"') & (b != b'\\'));
    if plain {
        return line.extend_from_slice(text.as_bytes());
    }
    for letter in text.chars() {
        let harmless = match letter {
            '"' | '\\' => '\'',
            letter if letter.is_control() => ' ',
            letter => letter,
        };
        line.extend_from_slice(harmless.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_log_line_is_one_json_object_for_any_value() {
        let mut line = LogLine::with_format(LogFormat::Json, Level::INFO, "test");
        line.text("a", "x\"y\n\\z ü");
        line.number("n", 7);
        line.millis("ms", 1_234.567);
        let text = line.finish();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], "x'y 'z ü");
        assert_eq!(value["ms"], 1234.567);
        assert!(value["time"].as_str().unwrap().starts_with("20"));
    }
}
