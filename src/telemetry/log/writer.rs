//! Writer of log lines: lines wait in a buffer, and a thread writes them. It starts with the first line. If the system
//! refuses a thread, that is logged, each line is written by the thread that made it, and the next line tries again.

use super::KEPT;
use super::line::Line;
use crate::config::settings::LogLevel;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Maximum bytes of lines in the buffer.
const MOST: usize = 4 << 20;
/// Time during which lines are collected.
const GATHERING: Duration = Duration::from_millis(100);
/// Time that the end of the process waits for the last lines.
const PATIENCE: Duration = Duration::from_millis(250);

static WAITING: Mutex<Waiting> = Mutex::new(Waiting::NOTHING);
/// Wakes the writer: there are lines, or it has to write at once.
static NEWS: Condvar = Condvar::new();
/// Notified when the writer has written all lines.
static DONE: Condvar = Condvar::new();

/// State of the writer thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Unstarted,
    /// The system refused a thread, and that was logged.
    Refused,
    Runs,
}

/// Lines that wait for the writer.
struct Waiting {
    text: Vec<u8>,
    /// Number of lines that were dropped.
    dropped: u64,
    /// True while the writer sleeps.
    idle: bool,
    /// True while a caller waits for all lines to be written.
    hurried: bool,
    writing: bool,
    writer: Writer,
}

impl Waiting {
    const NOTHING: Self = Self {
        text: Vec::new(),
        dropped: 0,
        idle: false,
        hurried: false,
        writing: false,
        writer: Writer::Unstarted,
    };

    /// Appends a line, or counts it as dropped. Returns true if the writer has to be woken.
    fn take(&mut self, line: &[u8]) -> bool {
        if self.text.len() + line.len() > MOST {
            self.dropped += 1;
        } else {
            self.text.extend_from_slice(line);
        }
        std::mem::take(&mut self.idle)
    }

    /// Returns true if the writer thread runs, or could be started now.
    fn has_writer(&mut self, start: impl FnOnce() -> io::Result<()>) -> bool {
        if self.writer == Writer::Runs {
            return true;
        }
        match start() {
            Ok(()) => self.writer = Writer::Runs,
            Err(why) if self.writer == Writer::Unstarted => {
                self.writer = Writer::Refused;
                let mut line = Line::new(LogLevel::Error, "log_thread_failed");
                line.text("why", &why.to_string());
                self.take(&line.end());
            }
            Err(_) => {}
        }
        self.writer == Writer::Runs
    }

    /// Writes the buffer without the thread.
    fn write(&mut self, out: &mut impl Write) {
        out.write_all(&self.text).ok();
        self.text.clear();
    }
}

/// Waits until all lines so far are written; called at the end of the process.
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

/// Submits a line.
pub(super) fn send(line: &[u8]) {
    let mut waiting = WAITING.lock();
    let wake = waiting.take(line);
    if !waiting.has_writer(start) {
        return waiting.write(&mut io::stderr());
    }
    drop(waiting);
    if wake {
        NEWS.notify_one();
    }
}

fn start() -> io::Result<()> {
    std::thread::Builder::new().name("log".to_owned()).spawn(write_lines).map(drop)
}

/// Writes all waiting lines at once.
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
        io::stderr().write_all(&text).ok();
        text.clear();
        text.shrink_to(KEPT);
        waiting = WAITING.lock();
        waiting.writing = false;
        // A pause joins many lines into one write, and saves a wake-up for each.
        if !waiting.hurried {
            NEWS.wait_for(&mut waiting, GATHERING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn without_a_thread_a_line_is_written_by_who_made_it_and_the_next_tries_again() {
        let mut waiting = Waiting::NOTHING;
        let mut line = |text: &[u8], start: io::Result<()>| {
            waiting.take(text);
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
