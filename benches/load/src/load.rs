//! Client side: requests at a fixed rate over persistent connections.
//!
//! A request's time counts from the moment at which it was due, so that a slow answer cannot hide the wait of later
//! requests. For a connection that was idle at that moment it counts from the thread's wake-up, since the timer of this
//! program is not under test.

use crate::mock::{content_length, head};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Plan of one measurement: request, rate and duration.
pub struct Plan<'a> {
    pub to: SocketAddr,
    pub request: &'a [u8],
    pub connections: usize,
    /// Requests per second; if infinite, each connection sends the next request as soon as it is answered.
    pub rate: f64,
    pub seconds: f64,
}

/// Times of successful answers, in nanoseconds.
#[derive(Default)]
pub struct Times {
    /// Times until the last byte of the answer.
    pub whole: Vec<u64>,
    /// Times until the first content token of a stream.
    pub first: Vec<u64>,
    pub failed: usize,
}

/// Connection and its buffers.
pub struct Connection {
    to: SocketAddr,
    stream: Option<TcpStream>,
    read: Vec<u8>,
    buffer: Vec<u8>,
}

/// Answer of a target.
pub struct Answer {
    pub status: u16,
    /// Head in lower case.
    pub head: String,
    pub body: Vec<u8>,
    /// Time of the first content token.
    first: Option<Instant>,
}

/// Returns a complete request for `POST /v1/chat/completions`.
pub fn request(to: SocketAddr, key: Option<&str>, body: &str) -> Vec<u8> {
    let key = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {to}\r\n{key}content-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Sends requests at the rate and waits for the last answer.
pub fn run(plan: &Plan<'_>) -> Times {
    // Unlimited if the rate is infinite.
    let total = (plan.rate * plan.seconds) as usize;
    let next = AtomicUsize::new(0);
    let begin = Instant::now() + Duration::from_millis(20);
    let mut times = Times::default();
    thread::scope(|scope| {
        let work = || worker(plan, &next, total, begin);
        let workers: Vec<_> = (0..plan.connections).map(|_| scope.spawn(work)).collect();
        for done in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            times.whole.extend(done.whole);
            times.first.extend(done.first);
            times.failed += done.failed;
        }
    });
    times
}

fn worker(plan: &Plan<'_>, next: &AtomicUsize, total: usize, begin: Instant) -> Times {
    let mut times = Times::default();
    let mut connection = Connection::new(plan.to);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= total || (plan.rate.is_infinite() && begin.elapsed().as_secs_f64() >= plan.seconds) {
            return times;
        }
        let due = if plan.rate.is_infinite() {
            begin.max(Instant::now())
        } else {
            begin + Duration::from_secs_f64(number as f64 / plan.rate)
        };
        let wait = due.saturating_duration_since(Instant::now());
        let from = if wait.is_zero() {
            due
        } else {
            thread::sleep(wait);
            Instant::now()
        };
        let nanoseconds = |at: Instant| u64::try_from((at - from).as_nanos()).unwrap_or(u64::MAX);
        match connection.ask(plan.request) {
            Ok(answer) if answer.status == 200 => {
                times.whole.push(nanoseconds(Instant::now()));
                times.first.extend(answer.first.map(nanoseconds));
                connection.recycle(answer);
            }
            _ => {
                times.failed += 1;
                connection = Connection::new(plan.to);
            }
        }
    }
}

impl Connection {
    pub fn new(to: SocketAddr) -> Self {
        Self { to, stream: None, read: Vec::new(), buffer: vec![0; 64 * 1024] }
    }

    fn recycle(&mut self, answer: Answer) {
        self.read = answer.body;
    }

    /// Sends a request and reads the complete answer.
    pub fn ask(&mut self, request: &[u8]) -> std::io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect_timeout(&self.to, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream
            }
        };
        stream.write_all(request)?;
        let mut read = std::mem::take(&mut self.read);
        read.clear();
        let ended = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let length = head(&mut stream, &mut read, &mut self.buffer)?.ok_or_else(ended)?;
        let text = String::from_utf8_lossy(read.get(..length).unwrap_or_default()).to_ascii_lowercase();
        let status = text.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let size = content_length(&text);
        read.drain(..length);
        let mut first = None;
        loop {
            if size.is_none() && first.is_none() && holds(&read, b"\"content\":\" word\"") {
                first = Some(Instant::now());
            }
            let whole = match size {
                Some(size) => read.len() >= size,
                // Events have no CR, so this is always the last chunk.
                None => read == b"0\r\n\r\n" || read.ends_with(b"\r\n0\r\n\r\n"),
            };
            if whole {
                break;
            }
            let count = stream.read(&mut self.buffer)?;
            if count == 0 {
                return Err(ended());
            }
            read.extend_from_slice(self.buffer.get(..count).unwrap_or_default());
        }
        if size.is_none() && !holds(&read, b"data: [DONE]") {
            return Err(ended());
        }
        self.stream = Some(stream);
        Ok(Answer { status, head: text, body: read, first })
    }
}

/// Returns true if the bytes contain the word.
pub fn holds(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|part| part == word)
}
