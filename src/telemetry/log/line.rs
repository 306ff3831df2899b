//! Builder of a log line: a JSON object or `key=value` pairs, safe for any value.

use super::{MAX_RETAINED_BYTES, writer};
use crate::config::settings::{LogFormat, LogLevel};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Capacity that fits most lines.
const USUAL: usize = 512;

thread_local! {
    /// Current second and its text.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    /// Buffer of the thread's last line, reused for the next line.
    static MADE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

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
    pub(super) fn new(level: LogLevel, event: &str) -> Self {
        let json = JSON.load(Ordering::Relaxed);
        let mut text = MADE.take();
        text.clear();
        text.reserve(USUAL);
        let mut line = Self { text, json };
        if json {
            line.text.push(b'{');
        }
        line.time(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let level = match level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        };
        line.literal("level", level);
        line.text("event", event);
        line
    }

    /// Appends the time by RFC 3339 with milliseconds, UTC. Each thread formats a second once.
    fn time(&mut self, since: Duration) {
        SECOND.with_borrow_mut(|(of, text)| {
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

    /// Appends a member: its key, and a value between these marks.
    fn member(&mut self, key: &str, quoted: bool, value: &[u8]) {
        let (before, between, quote): (&[u8], &[u8], &[u8]) = match (self.json, quoted) {
            (true, true) => (b",\"", b"\":\"", b"\""),
            (true, false) => (b",\"", b"\":", b""),
            (false, _) => (b" ", b"=", b""),
        };
        // No separator before the first one.
        let before = before.get(usize::from(self.text.len() <= 1)..).unwrap_or_default();
        self.text.reserve(key.len() + value.len() + 8);
        for part in [before, key.as_bytes(), between, value, quote] {
            self.text.extend_from_slice(part);
        }
    }

    /// Appends a name of the program.
    pub(super) fn literal(&mut self, key: &str, value: &'static str) {
        self.member(key, true, value.as_bytes());
    }

    /// Appends a value. Values are names of the operator's; anything else is escaped.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        // Scanned to the end in any case, so that many bytes are compared at once.
        let plain =
            value.bytes().fold(true, |plain, b| plain & b.is_ascii_graphic() & (b != b'"') & (b != b'\\'));
        if plain {
            return self.member(key, true, value.as_bytes());
        }
        let harmless = |letter: char| match letter {
            '"' | '\\' => '\'',
            letter if letter.is_control() => ' ',
            letter => letter,
        };
        self.member(key, true, value.chars().map(harmless).collect::<String>().as_bytes());
    }

    pub(super) fn optional(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.member(key, false, itoa::Buffer::new().format(value).as_bytes());
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.member(key, false, if value { b"true" } else { b"false" });
    }

    pub(super) fn decimal(&mut self, key: &str, value: rust_decimal::Decimal) {
        self.member(key, false, b"");
        penstock_response_metadata::write_number(&mut self.text, value);
    }

    pub(super) fn millis(&mut self, key: &str, value: Duration) {
        let micros = value.as_micros();
        self.number(key, u64::try_from(micros / 1_000).unwrap_or(u64::MAX));
        self.text.push(b'.');
        self.thousandths(u32::try_from(micros % 1_000).unwrap_or(0));
    }

    fn thousandths(&mut self, value: u32) {
        for digit in [value / 100, value / 10 % 10, value % 10] {
            self.text.push(b'0' + u8::try_from(digit).unwrap_or(0));
        }
    }

    pub(super) fn list<'v>(&mut self, key: &str, values: impl Iterator<Item = (&'v str, &'v str)>) {
        let mut joined = String::new();
        for (provider, outcome) in values {
            if !joined.is_empty() {
                joined.push(' ');
            }
            joined.push_str(provider);
            joined.push(':');
            joined.push_str(outcome);
        }
        self.text(key, &joined);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.text.extend_from_slice(if self.json { b"}\n" } else { b"\n" });
        self.text
    }

    pub(super) fn send(self) {
        let line = self.finish();
        writer::send_line(&line);
        if line.capacity() <= MAX_RETAINED_BYTES {
            MADE.set(line);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_log_line_is_one_json_object_for_any_value() {
        let mut line = LogLine::new(LogLevel::Info, "test");
        line.text("a", "x\"y\n\\z ü");
        line.number("n", 7);
        line.millis("ms", Duration::from_micros(1_234_567));
        let text = line.finish();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], "x'y 'z ü");
        assert_eq!(value["ms"], 1234.567);
        assert!(value["time"].as_str().unwrap().starts_with("20"));
    }
}
