//! Lines on standard error, one for each event, without a prompt, a completion
//! or a key. Lines are gathered in one place and written by a thread of their
//! own, so that a slow terminal never slows a request; when it cannot keep up,
//! lines are dropped and their number is told.

use super::Record;
use crate::config::settings::{Log, LogFormat, LogLevel};
use parking_lot::{Condvar, Mutex};
use penstock_contract::Done;
use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of lines that may wait for the writer.
const MOST: usize = 4 << 20;
/// Bytes that buffers keep once they are empty.
const KEPT: usize = 64 * 1024;
/// Bytes that most lines fit in.
const USUAL: usize = 512;

/// How long lines are gathered.
const GATHERING: Duration = Duration::from_millis(100);
/// How long the end of the process waits for its last lines.
const PATIENCE: Duration = Duration::from_millis(250);

thread_local! {
    /// A second and its text.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    /// What the thread's last line was made in, for the next.
    static MADE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static JSON: AtomicU8 = AtomicU8::new(1);
static WAITING: Mutex<Waiting> = Mutex::new(Waiting::NOTHING);
/// Something is there for the writer, or it is to write at once.
static NEWS: Condvar = Condvar::new();
/// The writer has written all there was.
static DONE: Condvar = Condvar::new();
static WRITER: Once = Once::new();

/// What waits for the writer.
struct Waiting {
    text: Vec<u8>,
    /// Lines that found no room.
    dropped: u64,
    /// The writer sleeps until somebody wakes it.
    idle: bool,
    /// Somebody waits until all is written.
    hurried: bool,
    writing: bool,
}

impl Waiting {
    const NOTHING: Self = Self { text: Vec::new(), dropped: 0, idle: false, hurried: false, writing: false };

    /// Takes a line, or counts it where there is no room; whether the writer is to be woken.
    fn take(&mut self, line: &[u8]) -> bool {
        if self.text.len() + line.len() > MOST {
            self.dropped += 1;
        } else {
            self.text.extend_from_slice(line);
        }
        std::mem::take(&mut self.idle)
    }
}

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

/// The level of lines that somebody may want to know of.
#[must_use]
pub const fn warn() -> LogLevel {
    LogLevel::Warn
}

/// The level of lines that need somebody.
#[must_use]
pub const fn error() -> LogLevel {
    LogLevel::Error
}

/// Whether a line of this level is written.
pub(super) fn wanted(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// The line of an ended exchange.
pub fn exchange(record: &Record, took: Duration) {
    if !wanted(LogLevel::Info) {
        return;
    }
    let mut line = Line::new(LogLevel::Info, "request");
    line.text("id", record.id.as_str());
    line.name("endpoint", record.endpoint);
    line.name("dialect", record.dialect.name());
    line.name("outcome", record.outcome.name());
    line.number("status", u64::from(record.status));
    if let Some(code) = record.code {
        line.name("code", code);
    }
    line.maybe("key", record.key.as_deref());
    line.maybe("model", record.model.as_deref());
    if let Some(flavor) = record.flavor {
        line.name("flavor", flavor);
    }
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
    line.send();
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
    line.send();
}

/// A line in the making.
struct Line {
    text: Vec<u8>,
    json: bool,
}

impl Line {
    fn new(level: LogLevel, event: &str) -> Self {
        let json = JSON.load(Ordering::Relaxed) == 1;
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
        line.name("level", level);
        line.text("event", event);
        line
    }

    /// In RFC 3339 with milliseconds, UTC. Each thread writes a second's text once.
    fn time(&mut self, since: Duration) {
        SECOND.with_borrow_mut(|(of, text)| {
            if *of != since.as_secs() || text.is_empty() {
                (*of, *text) = (since.as_secs(), crate::civil::rfc3339(since.as_secs()));
            }
            self.put("time", false, if self.json { b"\"" } else { b"" });
            self.text.extend_from_slice(text.trim_end_matches('Z').as_bytes());
        });
        self.text.push(b'.');
        self.thousandths(since.subsec_millis());
        self.text.extend_from_slice(if self.json { b"Z\"" } else { b"Z" });
    }

    /// A member: its key, and a value between these marks.
    fn put(&mut self, key: &str, quoted: bool, value: &[u8]) {
        let (before, between, quote): (&[u8], &[u8], &[u8]) = match (self.json, quoted) {
            (true, true) => (b",\"", b"\":\"", b"\""),
            (true, false) => (b",\"", b"\":", b""),
            (false, _) => (b" ", b"=", b""),
        };
        // The first has nothing before it.
        let before = before.get(usize::from(self.text.len() <= 1)..).unwrap_or_default();
        self.text.reserve(key.len() + value.len() + 8);
        for part in [before, key.as_bytes(), between, value, quote] {
            self.text.extend_from_slice(part);
        }
    }

    /// A name of ours.
    fn name(&mut self, key: &str, value: &'static str) {
        self.put(key, true, value.as_bytes());
    }

    /// Values are names of the operator's; whatever else comes is made harmless.
    fn text(&mut self, key: &str, value: &str) {
        // To the end, whatever is found: so it is done for many bytes at once.
        let plain =
            value.bytes().fold(true, |plain, b| plain & b.is_ascii_graphic() & (b != b'"') & (b != b'\\'));
        if plain {
            return self.put(key, true, value.as_bytes());
        }
        let harmless = |letter: char| match letter {
            '"' | '\\' => '\'',
            letter if letter.is_control() => ' ',
            letter => letter,
        };
        self.put(key, true, value.chars().map(harmless).collect::<String>().as_bytes());
    }

    fn maybe(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    fn number(&mut self, key: &str, value: u64) {
        self.put(key, false, itoa::Buffer::new().format(value).as_bytes());
    }

    fn flag(&mut self, key: &str, value: bool) {
        self.put(key, false, if value { b"true" } else { b"false" });
    }

    fn exact(&mut self, key: &str, value: rust_decimal::Decimal) {
        self.put(key, false, b"");
        penstock_annotate::number(&mut self.text, value);
    }

    fn millis(&mut self, key: &str, value: Duration) {
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

    fn end(mut self) -> Vec<u8> {
        self.text.extend_from_slice(if self.json { b"}\n" } else { b"\n" });
        self.text
    }

    fn send(self) {
        let line = self.end();
        send(&line);
        if line.capacity() <= KEPT {
            MADE.set(line);
        }
    }
}

/// Waits until the lines so far are written; for the end of the process.
pub fn flush() {
    let until = Instant::now() + PATIENCE;
    let mut waiting = WAITING.lock();
    waiting.hurried = true;
    NEWS.notify_one();
    while waiting.writing || !waiting.text.is_empty() {
        if DONE.wait_until(&mut waiting, until).timed_out() {
            break;
        }
    }
}

fn send(line: &[u8]) {
    WRITER.call_once(|| {
        std::thread::Builder::new().name("log".to_owned()).spawn(write_lines).ok();
    });
    let wake = WAITING.lock().take(line);
    if wake {
        NEWS.notify_one();
    }
}

/// Writes what waits, all at once.
fn write_lines() {
    let mut text = Vec::new();
    let mut waiting = WAITING.lock();
    loop {
        while waiting.text.is_empty() && waiting.dropped == 0 {
            DONE.notify_all();
            (waiting.hurried, waiting.idle) = (false, true);
            NEWS.wait(&mut waiting);
            waiting.idle = false;
        }
        std::mem::swap(&mut text, &mut waiting.text);
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.writing = true;
        drop(waiting);
        if dropped > 0 {
            let mut line = Line::new(LogLevel::Warn, "log_lines_dropped");
            line.number("lines", dropped);
            text.extend_from_slice(&line.end());
        }
        std::io::stderr().write_all(&text).ok();
        text.clear();
        text.shrink_to(KEPT);
        waiting = WAITING.lock();
        waiting.writing = false;
        // A rest lets many lines become one write, and spares a thread's waking for each.
        if !waiting.hurried {
            NEWS.wait_for(&mut waiting, GATHERING);
        }
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
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], "x'y 'z ü");
        assert_eq!(value["ms"], 1234.567);
        assert!(value["time"].as_str().unwrap().starts_with("20"));
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_those_before_stay() {
        let mut waiting = Waiting { idle: true, ..Waiting::NOTHING };
        let line = [b'x'; 1_000];
        assert!(waiting.take(&line), "who sleeps is woken");
        assert!(!waiting.take(&line), "once");
        (2..MOST / 1_000 + 3).for_each(|_| assert!(!waiting.take(&line)));
        assert_eq!((waiting.text.len(), waiting.dropped), (MOST / 1_000 * 1_000, 3));
        waiting.text.clear();
        waiting.take(&line);
        assert_eq!((waiting.text.len(), waiting.dropped), (1_000, 3));
    }

    #[test]
    fn the_line_of_an_exchange_can_be_told_without_an_answer() {
        let record = Record::new(RequestId::random(), Dialect::Chat);
        exchange(&record, Duration::from_millis(3));
    }
}
