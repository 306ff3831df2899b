//! Writer of log lines: lines wait in a buffer, and a thread writes them. It starts with the first line. If the system
//! refuses a thread, that is logged, each line is written by the thread that made it, and the next line tries again.

use super::MAX_RETAINED_BYTES;
use super::line::LogLine;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::time::{Duration, Instant};
use tracing::Level;

/// Maximum bytes of lines in the buffer.
const MAX_BUFFERED_BYTES: usize = 4 << 20;
/// Time during which lines are collected.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time that the end of the process waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(250);

static LOG_BUFFER: Mutex<LogBuffer> = Mutex::new(LogBuffer::EMPTY);
/// Wakes the writer: there are lines, or it has to write at once.
static LINES_READY: Condvar = Condvar::new();
/// Notified when the writer has written all lines.
static LINES_WRITTEN: Condvar = Condvar::new();

/// State of the writer thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Unstarted,
    /// The system refused a thread, and that was logged.
    Refused,
    Runs,
}

/// Lines that wait for the writer.
struct LogBuffer {
    text: Vec<u8>,
    /// Number of lines that were dropped.
    dropped: u64,
    /// True while the writer sleeps.
    idle: bool,
    /// True while a caller waits for all lines to be written.
    flushing: bool,
    writing: bool,
    writer: WriterState,
}

impl LogBuffer {
    const EMPTY: Self = Self {
        text: Vec::new(),
        dropped: 0,
        idle: false,
        flushing: false,
        writing: false,
        writer: WriterState::Unstarted,
    };

    /// Appends a line, or counts it as dropped. Returns true if the writer has to be woken.
    fn push_line(&mut self, line: &[u8]) -> bool {
        if self.text.len() + line.len() > MAX_BUFFERED_BYTES {
            self.dropped += 1;
        } else {
            self.text.extend_from_slice(line);
        }
        std::mem::take(&mut self.idle)
    }

    /// Returns true if the writer thread runs, or could be started now.
    fn has_writer(&mut self, start: impl FnOnce() -> io::Result<()>) -> bool {
        if self.writer == WriterState::Runs {
            return true;
        }
        match start() {
            Ok(()) => self.writer = WriterState::Runs,
            Err(why) if self.writer == WriterState::Unstarted => {
                self.writer = WriterState::Refused;
                let mut line = LogLine::new(Level::ERROR, "log_thread_failed");
                line.text("why", &why.to_string());
                self.push_line(&line.finish());
            }
            Err(_) => {}
        }
        self.writer == WriterState::Runs
    }

    /// Writes the buffer without the thread.
    fn write(&mut self, out: &mut impl Write) {
        out.write_all(&self.text).ok();
        self.text.clear();
    }
}

/// Waits until all lines so far are written; called at the end of the process.
pub fn flush() {
    let until = Instant::now() + FLUSH_TIMEOUT;
    let mut waiting = LOG_BUFFER.lock();
    waiting.flushing = true;
    LINES_READY.notify_one();
    while waiting.writing || !waiting.text.is_empty() {
        if LINES_WRITTEN.wait_until(&mut waiting, until).timed_out() {
            break;
        }
    }
}

/// Submits a line.
pub(super) fn send_line(line: &[u8]) {
    let mut waiting = LOG_BUFFER.lock();
    let wake = waiting.push_line(line);
    if !waiting.has_writer(start_writer) {
        return waiting.write(&mut io::stderr());
    }
    drop(waiting);
    if wake {
        LINES_READY.notify_one();
    }
}

fn start_writer() -> io::Result<()> {
    std::thread::Builder::new().name("log".to_owned()).spawn(write_lines).map(drop)
}

/// Writes all waiting lines at once.
fn write_lines() {
    let mut text = Vec::new();
    let mut waiting = LOG_BUFFER.lock();
    loop {
        while waiting.text.is_empty() && waiting.dropped == 0 {
            LINES_WRITTEN.notify_all();
            (waiting.flushing, waiting.idle) = (false, true);
            LINES_READY.wait(&mut waiting);
            waiting.idle = false;
        }
        std::mem::swap(&mut text, &mut waiting.text);
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.writing = true;
        drop(waiting);
        if dropped > 0 {
            let mut line = LogLine::new(Level::WARN, "log_lines_dropped");
            line.number("lines", dropped);
            text.extend_from_slice(&line.finish());
        }
        io::stderr().write_all(&text).ok();
        text.clear();
        text.shrink_to(MAX_RETAINED_BYTES);
        waiting = LOG_BUFFER.lock();
        waiting.writing = false;
        // A pause joins many lines into one write, and saves a wake-up for each.
        if !waiting.flushing {
            LINES_READY.wait_for(&mut waiting, BATCH_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_dropped_from_a_full_queue_are_counted() {
        let mut waiting = LogBuffer { idle: true, ..LogBuffer::EMPTY };
        let line = [b'x'; 1_000];
        assert!(waiting.push_line(&line), "who sleeps is woken");
        assert!(!waiting.push_line(&line), "once");
        (2..MAX_BUFFERED_BYTES / 1_000 + 3).for_each(|_| assert!(!waiting.push_line(&line)));
        assert_eq!((waiting.text.len(), waiting.dropped), (MAX_BUFFERED_BYTES / 1_000 * 1_000, 3));
        waiting.text.clear();
        waiting.push_line(&line);
        assert_eq!((waiting.text.len(), waiting.dropped), (1_000, 3));
    }

    #[test]
    fn without_a_thread_a_line_is_written_by_its_producer_and_the_next_retries() {
        let mut waiting = LogBuffer::EMPTY;
        let mut line = |text: &[u8], start: io::Result<()>| {
            waiting.push_line(text);
            let mut written = Vec::new();
            let runs = waiting.has_writer(|| start);
            if !runs {
                waiting.write(&mut written);
            }
            (runs, String::from_utf8_lossy(&written).into_owned(), waiting.text.len())
        };
        let none = || Err(io::ErrorKind::WouldBlock.into());
        let (runs, written, left) = line(b"one\n", none());
        assert!(!runs && left == 0);
        assert!(written.starts_with("one\n") && written.contains("log_thread_failed"), "{written}");
        assert_eq!(line(b"two\n", none()), (false, "two\n".into(), 0), "it is told once");
        assert_eq!(line(b"three\n", Ok(())), (true, String::new(), 6), "the thread will write it");
        assert!(line(b"four\n", none()).0, "it is not started again");
    }
}
