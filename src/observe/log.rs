//! Lines on standard error, one for each event, without a prompt, a completion
//! or a key. Lines are gathered and written by a thread of their own, so that a
//! slow terminal never slows a request; when it cannot keep up, lines are
//! dropped and their number is told.

use super::Record;
use crate::config::settings::{Log, LogFormat, LogLevel};
use penstock_contract::Done;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines that may wait for the writer.
const QUEUE: usize = 8_192;
/// Bytes gathered into one write.
const GATHER: usize = 64 * 1024;

/// How long lines are gathered.
const GATHERING: Duration = Duration::from_millis(50);

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static JSON: AtomicU8 = AtomicU8::new(1);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static LINES: OnceLock<SyncSender<String>> = OnceLock::new();

/// Sets level and shape.
pub fn set(log: Log) {
    LEVEL.store(log.level as u8, Ordering::Relaxed);
    JSON.store(u8::from(log.format == LogFormat::Json), Ordering::Relaxed);
}

/// The level of ordinary lines.
#[must_use]
pub const fn info() -> LogLevel {
    LogLevel::Info
}

/// The level of lines that need somebody.
#[must_use]
pub const fn error() -> LogLevel {
    LogLevel::Error
}

/// Whether a line of this level is written.
fn wanted(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// The line of an ended exchange.
pub fn exchange(record: &Record, took: Duration) {
    if !wanted(LogLevel::Info) {
        return;
    }
    let mut line = Line::new(LogLevel::Info, "request");
    line.text("id", record.id.as_str());
    line.text("endpoint", record.endpoint);
    line.text("dialect", record.dialect.name());
    line.text("outcome", record.outcome.name());
    line.number("status", u64::from(record.status));
    line.maybe("code", record.code);
    line.maybe("key", record.key.as_deref());
    line.maybe("model", record.model.as_deref());
    line.maybe("flavor", record.flavor);
    line.maybe("provider", record.provider.as_deref());
    line.number("attempts", record.attempts.len() as u64);
    if record.attempts.len() > 1 {
        line.list("tried", record.attempts.iter().map(|note| (&*note.provider, note.outcome)));
    }
    line.flag("stream", record.stream);
    if record.line {
        line.flag("line", true);
    }
    line.millis("ms", took);
    line.millis("own_ms", record.own(took));
    if !record.queued.is_zero() {
        line.millis("queued_ms", record.queued);
    }
    if let Some(first) = record.first_token {
        line.millis("first_token_ms", first);
    }
    match &record.done {
        Some(Done::Tokens(usage)) => {
            line.number("input_tokens", usage.input);
            line.number("output_tokens", usage.output);
        }
        Some(Done::Images { count, .. }) => line.number("images", u64::from(*count)),
        Some(Done::Audio { seconds }) => line.exact("audio_seconds", *seconds),
        Some(Done::Unknown) | None => {}
    }
    if let Some(footprint) = &record.footprint {
        line.exact("energy_kwh", footprint.energy_kwh);
        line.exact("carbon_g", footprint.carbon_g);
    }
    if let Some(charge) = &record.charge {
        line.exact("credits", charge.credits.credits());
    }
    line.number("bytes_in", record.bytes_in as u64);
    line.number("bytes_out", record.bytes_out as u64);
    send(line.end());
}

/// A line about the house itself.
pub fn event(level: LogLevel, name: &str, members: &[(&str, &str)]) {
    if !wanted(level) {
        return;
    }
    let mut line = Line::new(level, name);
    for (key, value) in members {
        line.text(key, value);
    }
    send(line.end());
}

/// A line in the making.
struct Line {
    text: String,
    json: bool,
}

impl Line {
    fn new(level: LogLevel, event: &str) -> Self {
        let json = JSON.load(Ordering::Relaxed) == 1;
        let mut line = Self { text: String::with_capacity(512), json };
        if json {
            line.text.push('{');
        }
        line.raw("time", timestamp);
        let level = match level {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        };
        line.text("level", level);
        line.text("event", event);
        line
    }

    fn key(&mut self, key: &str) {
        if self.text.len() > 1 {
            self.text.push(if self.json { ',' } else { ' ' });
        }
        if self.json {
            self.text.push('"');
            self.text.push_str(key);
            self.text.push_str("\":");
        } else {
            self.text.push_str(key);
            self.text.push('=');
        }
    }

    fn raw(&mut self, key: &str, write: impl FnOnce(&mut String)) {
        self.key(key);
        if self.json {
            self.text.push('"');
        }
        write(&mut self.text);
        if self.json {
            self.text.push('"');
        }
    }

    /// Values are names of ours; whatever else comes is made harmless.
    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, |text| {
            let plain = value.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
            if plain {
                return text.push_str(value);
            }
            for letter in value.chars() {
                match letter {
                    '"' | '\\' => text.push('\''),
                    letter if letter.is_control() => text.push(' '),
                    letter => text.push(letter),
                }
            }
        });
    }

    fn maybe(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn number(&mut self, key: &str, value: u64) {
        self.key(key);
        self.text.push_str(itoa::Buffer::new().format(value));
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.key(key);
        self.text.push_str(if value { "true" } else { "false" });
    }

    fn exact(&mut self, key: &str, value: rust_decimal::Decimal) {
        self.key(key);
        write!(self.text, "{value}").ok();
    }

    fn millis(&mut self, key: &str, value: Duration) {
        self.key(key);
        let micros = value.as_micros();
        write!(self.text, "{}.{:03}", micros / 1000, micros % 1000).ok();
    }

    fn list<'v>(&mut self, key: &str, values: impl Iterator<Item = (&'v str, &'v str)>) {
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

    fn end(mut self) -> String {
        if self.json {
            self.text.push('}');
        }
        self.text.push('\n');
        self.text
    }
}

/// Now, in RFC 3339 with milliseconds.
fn timestamp(text: &mut String) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = crate::civil::rfc3339(since.as_secs());
    write!(text, "{}.{:03}Z", whole.trim_end_matches('Z'), since.subsec_millis()).ok();
}

/// Waits until the lines so far are written; for the end of the process.
pub fn flush() {
    std::thread::sleep(GATHERING * 2);
}

fn send(line: String) {
    let lines = LINES.get_or_init(|| {
        let (lines, queue) = sync_channel(QUEUE);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_lines(&queue)).ok();
        lines
    });
    if lines.try_send(line).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gathers what waits and writes it at once.
fn write_lines(queue: &Receiver<String>) {
    let mut gathered = String::new();
    while let Ok(first) = queue.recv() {
        gathered.push_str(&first);
        while gathered.len() < GATHER {
            let Ok(line) = queue.try_recv() else { break };
            gathered.push_str(&line);
        }
        let dropped = DROPPED.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let mut line = Line::new(LogLevel::Warn, "log_lines_dropped");
            line.number("lines", dropped);
            gathered.push_str(&line.end());
        }
        std::io::stderr().write_all(gathered.as_bytes()).ok();
        gathered.clear();
        // A rest lets many lines become one write, and spares a thread's waking for each.
        std::thread::sleep(GATHERING);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::request_id::RequestId;
    use penstock_contract::Dialect;

    #[test]
    fn a_line_is_one_json_object_whatever_a_value_holds() {
        let mut line = Line::new(LogLevel::Info, "test");
        line.text("a", "x\"y\n\\z ü");
        line.number("n", 7);
        line.millis("ms", Duration::from_micros(1_234_567));
        let text = line.end();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], "x'y 'z ü");
        assert_eq!(value["ms"], 1234.567);
        assert!(value["time"].as_str().unwrap().starts_with("20"));
    }

    #[test]
    fn the_line_of_an_exchange_can_be_told_without_an_answer() {
        let record = Record::new(RequestId::random(), Dialect::Chat);
        exchange(&record, Duration::from_millis(3));
    }
}
