//! Writer of log lines. Lines wait in the queue of `tracing-appender`, whose thread writes them in batches to standard
//! error. The thread starts with the first line. If the system refuses the thread, the refusal is logged, each line is
//! written by the thread that made it, and the next line tries to start the thread again.

use super::MAX_RETAINED_BYTES;
use super::line::LogLine;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tracing::Level;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Maximum bytes of lines in the queue.
const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Maximum number of lines in the queue. The queue allocates 32 bytes for each possible line when it is created.
const MAX_QUEUED_LINES: usize = 8 << 10;
/// Time for which lines are collected before they are written together.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Time that the end of the process waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Name of the thread that writes log lines.
const THREAD_NAME: &str = "log";

static QUEUE: LineQueue = LineQueue::new();
static THREAD: WriterThread = WriterThread::new();

/// Waits until all lines so far are written, for at most a second; called at the end of the process.
pub fn flush_log() {
    QUEUE.wait_until_written(Instant::now() + FLUSH_TIMEOUT);
}

/// Makes the writer thread write all queued lines now, without a pause. Does not wait until they are written.
pub fn request_flush() {
    QUEUE.request_flush();
}

/// Queues a log line, or writes it directly if there is no writer thread.
pub(super) fn send_line(line: &[u8]) {
    let mut stderr = io::stderr();
    if let Some(worker) = THREAD.get_or_start(|| spawn_worker(&QUEUE, io::stderr()), &mut stderr) {
        QUEUE.push(worker, line);
    } else {
        stderr.write_all(line).ok();
    }
}

/// State of the queue, shared by the writer thread and its callers: the admitted lines and bytes, and the signals.
struct LineQueue {
    /// Lines that were accepted and are not written yet.
    lines: AtomicUsize,
    /// Total bytes of the lines that are not written yet.
    bytes: AtomicUsize,
    /// Number of lines that were dropped since the last report.
    dropped: AtomicU64,
    /// True while a caller waits for all lines to be written.
    is_flushing: Mutex<bool>,
    /// Signal that ends the pause of the writer thread.
    flush_requested: Condvar,
    /// Notified when all lines are written.
    all_written: Condvar,
}

impl LineQueue {
    const fn new() -> Self {
        Self {
            lines: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            is_flushing: Mutex::new(false),
            flush_requested: Condvar::new(),
            all_written: Condvar::new(),
        }
    }

    /// Queues a line, or counts it as dropped.
    fn push(&self, worker: &Worker, line: &[u8]) {
        if self.admit(line.len()) {
            // The queue is never full here, because `admit` refuses lines before its capacity is reached.
            worker.queue.clone().write_all(line).ok();
        }
    }

    /// Returns true if a line of this length in bytes fits into the queue, and then counts it; otherwise counts it as
    /// dropped.
    fn admit(&self, length: usize) -> bool {
        let lines = self.lines.fetch_add(1, Ordering::AcqRel);
        let bytes = self.bytes.fetch_add(length, Ordering::AcqRel);
        let fits = lines < MAX_QUEUED_LINES && bytes + length <= MAX_QUEUED_BYTES;
        if !fits {
            self.remove(1, length);
            self.dropped.fetch_add(1, Ordering::AcqRel);
        }
        fits
    }

    fn remove(&self, lines: usize, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.lines.fetch_sub(lines, Ordering::AcqRel);
    }

    fn is_empty(&self) -> bool {
        self.lines.load(Ordering::Acquire) == 0
    }

    fn request_flush(&self) {
        *self.is_flushing.lock() = true;
        self.flush_requested.notify_one();
    }

    /// Returns true once all lines are written, and false at the deadline.
    fn wait_until_written(&self, deadline: Instant) -> bool {
        let mut is_flushing = self.is_flushing.lock();
        while !self.is_empty() {
            *is_flushing = true;
            self.flush_requested.notify_one();
            if self.all_written.wait_until(&mut is_flushing, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Pauses the thread. Lines that arrive in the pause are joined into one write, which saves a wake-up of the
    /// thread per line.
    fn pause(&self) {
        let mut is_flushing = self.is_flushing.lock();
        if self.is_empty() {
            *is_flushing = false;
            self.all_written.notify_all();
        }
        if !*is_flushing {
            self.flush_requested.wait_for(&mut is_flushing, BATCH_INTERVAL);
        }
    }
}

/// Writer in the writer thread. It collects lines until the queue is empty, and then writes them at once.
struct BatchWriter<W> {
    queue: &'static LineQueue,
    out: W,
    text: Vec<u8>,
    /// Number of lines in `text`.
    lines: usize,
}

impl<W: Write> BatchWriter<W> {
    fn write_batch(&mut self) {
        let (lines, bytes) = (std::mem::take(&mut self.lines), self.text.len());
        let dropped = self.queue.dropped.swap(0, Ordering::AcqRel);
        if dropped > 0 {
            let mut line = LogLine::new(Level::WARN, "log_lines_dropped");
            line.number("lines", dropped);
            self.text.extend_from_slice(&line.finish());
        }
        self.out.write_all(&self.text).ok();
        self.text.clear();
        self.text.shrink_to(MAX_RETAINED_BYTES);
        self.queue.remove(lines, bytes);
    }
}

impl<W: Write> Write for BatchWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(line);
        self.lines += 1;
        if self.text.len() >= MAX_RETAINED_BYTES {
            self.write_batch();
        }
        Ok(line.len())
    }

    /// Writes the collected lines and pauses; called when the queue is empty.
    fn flush(&mut self) -> io::Result<()> {
        self.write_batch();
        self.queue.pause();
        Ok(())
    }
}

/// Running thread of the writer, with the guard that ends the thread on drop.
struct Worker {
    queue: NonBlocking,
    _guard: WorkerGuard,
}

/// Starts the thread. `tracing-appender` panics if the system refuses to create the thread. So a thread that does no
/// work is started first; if that fails, its error is returned.
fn spawn_worker(queue: &'static LineQueue, out: impl Write + Send + 'static) -> io::Result<Worker> {
    thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(|| {})?.join().ok();
    let out = BatchWriter { queue, out, text: Vec::new(), lines: 0 };
    let builder =
        NonBlockingBuilder::default().buffered_lines_limit(MAX_QUEUED_LINES).thread_name(THREAD_NAME);
    let started = catch_unwind(AssertUnwindSafe(|| builder.finish(out)));
    let (queue, guard) = started.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
    Ok(Worker { queue, _guard: guard })
}

/// Thread of the writer, if it was started.
struct WriterThread {
    worker: OnceLock<Worker>,
    /// True once a failed start of the thread was logged. The lock is held while the thread is started.
    is_refused: Mutex<bool>,
}

impl WriterThread {
    const fn new() -> Self {
        Self { worker: OnceLock::new(), is_refused: Mutex::new(false) }
    }

    /// Returns the writer thread; starts it if it does not run. If the start fails, the failure is logged to `out`
    /// once, and `None` is returned.
    fn get_or_start(
        &self,
        start: impl FnOnce() -> io::Result<Worker>,
        out: &mut impl Write,
    ) -> Option<&Worker> {
        if let Some(worker) = self.worker.get() {
            return Some(worker);
        }
        // The lock is not free while another thread starts the writer thread, or if this thread itself starts it and
        // a panic in between is logged. Then the caller writes the line directly.
        let mut is_refused = self.is_refused.try_lock()?;
        if self.worker.get().is_none() {
            match start() {
                Ok(worker) => return Some(self.worker.get_or_init(|| worker)),
                Err(error) if !*is_refused => {
                    *is_refused = true;
                    let mut line = LogLine::new(Level::ERROR, "log_thread_failed");
                    line.text("why", &error.to_string());
                    out.write_all(&line.finish()).ok();
                }
                Err(_) => {}
            }
        }
        self.worker.get()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Output that hands each write to the test, and waits until the test lets it go on.
    struct GatedOutput {
        written: Sender<String>,
        gate: Receiver<()>,
    }

    impl Write for GatedOutput {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.written.send(String::from_utf8_lossy(text).into_owned()).ok();
            self.gate.recv().ok();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(queue: &'static LineQueue) -> (Worker, Receiver<String>, Sender<()>) {
        let ((written, read), (open, gate)) = (channel(), channel());
        (spawn_worker(queue, GatedOutput { written, gate }).unwrap(), read, open)
    }

    #[test]
    fn lines_beyond_the_bytes_of_the_queue_are_dropped_and_reported() {
        static QUEUE: LineQueue = LineQueue::new();
        let (worker, read, open) = start(&QUEUE);
        QUEUE.push(&worker, b"first\n");
        assert_eq!(read.recv().unwrap(), "first\n");
        // The output blocks on the first line, which still counts towards the limit.
        let line = [b'x'; 1 << 10];
        (0..MAX_QUEUED_BYTES / line.len() + 2).for_each(|_| QUEUE.push(&worker, &line));
        assert_eq!(QUEUE.dropped.load(Ordering::Acquire), 3);
        assert_eq!(QUEUE.lines.load(Ordering::Acquire), MAX_QUEUED_BYTES / line.len());
        drop(open);
        assert!(QUEUE.wait_until_written(Instant::now() + Duration::from_secs(60)));
        assert_eq!(QUEUE.bytes.load(Ordering::Acquire), 0);
        let rest: String = read.try_iter().collect();
        assert_eq!(rest.matches('x').count(), MAX_QUEUED_BYTES - line.len());
        assert!(rest.contains(r#""event":"log_lines_dropped","lines":3}"#));
    }

    #[test]
    fn lines_beyond_the_number_of_the_queue_are_dropped() {
        let queue = LineQueue::new();
        let admitted = (0..MAX_QUEUED_LINES + 5).filter(|_| queue.admit(1)).count();
        assert_eq!((admitted, queue.dropped.load(Ordering::Acquire)), (MAX_QUEUED_LINES, 5));
    }

    #[test]
    fn lines_of_one_interval_are_one_write_and_a_flush_ends_the_interval() {
        static QUEUE: LineQueue = LineQueue::new();
        let (worker, read, open) = start(&QUEUE);
        QUEUE.push(&worker, b"one\n");
        assert_eq!(read.recv().unwrap(), "one\n");
        QUEUE.push(&worker, b"two\n");
        QUEUE.push(&worker, b"three\n");
        drop(open);
        assert!(QUEUE.wait_until_written(Instant::now() + Duration::from_secs(60)));
        assert_eq!(read.try_iter().collect::<Vec<_>>(), ["two\nthree\n"]);
        assert!(!*QUEUE.is_flushing.lock(), "the next interval is not cut short");
    }

    #[test]
    fn a_requested_flush_ends_the_interval_and_does_not_wait() {
        static QUEUE: LineQueue = LineQueue::new();
        let (worker, read, open) = start(&QUEUE);
        QUEUE.push(&worker, b"one\n");
        assert_eq!(read.recv().unwrap(), "one\n");
        // The output still blocks on the first line, so the second one waits in the queue.
        QUEUE.push(&worker, b"two\n");
        QUEUE.request_flush();
        assert!(!QUEUE.is_empty());
        drop(open);
        assert_eq!(read.recv().unwrap(), "two\n");
        assert!(QUEUE.wait_until_written(Instant::now() + Duration::from_secs(60)));
        assert!(!*QUEUE.is_flushing.lock(), "the next interval is not cut short");
    }

    #[test]
    fn without_a_thread_a_line_is_written_by_its_producer_and_the_next_retries() {
        static QUEUE: LineQueue = LineQueue::new();
        let thread = WriterThread::new();
        let mut output = Vec::new();
        assert!(thread.get_or_start(|| Err(io::ErrorKind::WouldBlock.into()), &mut output).is_none());
        let line = String::from_utf8(std::mem::take(&mut output)).unwrap();
        assert!(line.contains(r#""event":"log_thread_failed","why":"operation would block"}"#), "{line}");
        assert!(thread.get_or_start(|| Err(io::ErrorKind::WouldBlock.into()), &mut output).is_none());
        assert!(thread.get_or_start(|| spawn_worker(&QUEUE, io::sink()), &mut output).is_some());
        assert!(thread.get_or_start(|| Err(io::ErrorKind::WouldBlock.into()), &mut output).is_some());
        assert!(output.is_empty(), "it is told once");
        // While another call starts the thread, lines are written directly.
        let busy = WriterThread::new();
        let _starts = busy.is_refused.lock();
        assert!(busy.get_or_start(|| spawn_worker(&QUEUE, io::sink()), &mut output).is_none());
    }
}
