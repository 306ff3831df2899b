//! Scripted provider over a raw socket that records its requests.

use crate::script::{Script, ScriptStep, plain, stream};
use crate::until;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Time at which the complete request had arrived.
    pub at: Instant,
}

impl RecordedRequest {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the provider was sent JSON")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Function that chooses the script for a request.
pub type ScriptSelector = Box<dyn Fn(&RecordedRequest) -> Script + Send + Sync>;

#[derive(Default)]
struct State {
    /// Function that chooses the script of every request; requests are then not recorded.
    pick: Option<ScriptSelector>,
    queue: Mutex<VecDeque<Script>>,
    always: Mutex<Option<Script>>,
    streams: Mutex<Option<Script>>,
    gets: Mutex<Option<Script>>,
    next_gets: Mutex<VecDeque<Script>>,
    seen: Mutex<Vec<RecordedRequest>>,
    /// Number of clients that disconnected before the script ended.
    left: AtomicUsize,
    /// Number of scripts that are running, and the maximum at one time.
    open: AtomicUsize,
    most: AtomicUsize,
}

/// Provider that plays a script for each request.
pub struct Provider {
    pub address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Provider {
    /// Starts a provider that answers successfully by default.
    pub async fn start() -> Self {
        Self::with(State::default()).await
    }

    /// Starts a provider whose scripts are chosen by `pick`; it records no requests.
    pub async fn with_selector(pick: ScriptSelector) -> Self {
        Self::with(State { pick: Some(pick), ..State::default() }).await
    }

    async fn with(state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(state);
        let shared = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let state = shared.clone();
                tokio::spawn(async move { serve(socket, &state).await });
            }
        });
        Self { address, state, task }
    }

    /// Appends a script to the queue; each request takes the next script of the queue.
    pub fn then(&self, script: Script) -> &Self {
        self.state.queue.lock().push_back(script);
        self
    }

    /// Sets the script of requests for which no other one is set.
    pub fn always(&self, script: Script) -> &Self {
        *self.state.always.lock() = Some(script);
        self
    }

    /// Sets the script of streamed requests for which no other one is set.
    pub fn streams(&self, script: Script) -> &Self {
        *self.state.streams.lock() = Some(script);
        self
    }

    /// Sets the script of every GET.
    pub fn gets(&self, script: Script) -> &Self {
        *self.state.gets.lock() = Some(script);
        self
    }

    /// Appends a script to the queue of GET requests; each GET request takes the next one.
    pub fn get_then(&self, script: Script) -> &Self {
        self.state.next_gets.lock().push_back(script);
        self
    }

    /// Removes the appended scripts that were not used yet.
    pub fn clear(&self) {
        self.state.queue.lock().clear();
    }

    /// Returns the number of POST requests.
    pub fn calls(&self) -> usize {
        self.state.seen.lock().iter().filter(|seen| seen.method == "POST").count()
    }

    /// Returns all recorded requests.
    pub fn seen(&self) -> Vec<RecordedRequest> {
        self.state.seen.lock().clone()
    }

    /// Returns the last request.
    pub fn last(&self) -> RecordedRequest {
        self.seen().pop().expect("the provider was asked")
    }

    /// Returns the number of clients that disconnected before the script ended.
    pub fn left(&self) -> usize {
        self.state.left.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of requests in flight at one time.
    pub fn max_in_flight(&self) -> usize {
        self.state.most.load(Ordering::SeqCst)
    }

    pub async fn until_calls(&self, calls: usize) {
        until("calls", || self.calls() >= calls).await;
    }

    pub async fn until_left(&self, left: usize) {
        until("the gateway to leave", || self.left() >= left).await;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, state: &State) {
    let mut buffer = Vec::new();
    while let Some(seen) = read(&mut socket, &mut buffer).await {
        let script = match &state.pick {
            Some(pick) => pick(&seen),
            None => state.next(seen),
        };
        let open = state.open.fetch_add(1, Ordering::SeqCst) + 1;
        state.most.fetch_max(open, Ordering::SeqCst);
        let outcome = play(&mut socket, script).await;
        state.open.fetch_sub(1, Ordering::SeqCst);
        match outcome {
            PlayOutcome::KeepAlive => {}
            PlayOutcome::Closed => return,
            PlayOutcome::Left => {
                state.left.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

impl RecordedRequest {
    /// Returns true if the request asks for a stream.
    pub fn streamed(&self) -> bool {
        self.body.windows(13).any(|window| window == b"\"stream\":true")
    }
}

impl State {
    fn next(&self, seen: RecordedRequest) -> Script {
        let (streamed, check) = (seen.streamed(), seen.method == "GET");
        self.seen.lock().push(seen);
        let next = || self.next_gets.lock().pop_front();
        let gets = || next().or_else(|| self.gets.lock().clone()).or_else(|| Some(plain("ok")));
        let script = if check { gets() } else { self.queue.lock().pop_front() };
        let script = script.or_else(|| self.streams.lock().clone().filter(|_| streamed));
        let script = script.or_else(|| self.always.lock().clone());
        script.unwrap_or_else(|| if streamed { stream(&["Hel", "lo"]) } else { plain("Hello") })
    }
}

enum PlayOutcome {
    KeepAlive,
    Closed,
    Left,
}

async fn play(socket: &mut TcpStream, script: Script) -> PlayOutcome {
    let mut head = Vec::new();
    for act in script {
        let bytes = match act {
            ScriptStep::Head(status, headers) => {
                head = format!("HTTP/1.1 {status} Scripted\r\n").into_bytes();
                let chunked = headers.iter().any(|(name, _)| *name == "transfer-encoding");
                for (name, value) in headers {
                    head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
                }
                if !chunked {
                    continue;
                }
                head.extend_from_slice(b"\r\n");
                std::mem::take(&mut head)
            }
            ScriptStep::Body(body) => {
                let mut bytes = std::mem::take(&mut head);
                bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
                bytes.extend_from_slice(&body);
                bytes
            }
            ScriptStep::Chunk(data) => {
                let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
                bytes.extend_from_slice(&data);
                bytes.extend_from_slice(b"\r\n");
                bytes
            }
            ScriptStep::End => b"0\r\n\r\n".to_vec(),
            ScriptStep::Raw(bytes) => bytes,
            ScriptStep::Wait(go) => {
                tokio::select! {
                    () = go.notified() => continue,
                    () = gone(socket) => return PlayOutcome::Left,
                }
            }
            ScriptStep::Pause(pause) => {
                tokio::time::sleep(pause).await;
                continue;
            }
            ScriptStep::Hang => {
                gone(socket).await;
                return PlayOutcome::Left;
            }
            ScriptStep::Cut => return PlayOutcome::Closed,
        };
        if socket.write_all(&bytes).await.is_err() {
            return PlayOutcome::Left;
        }
    }
    PlayOutcome::KeepAlive
}

/// Completes when the peer has closed the connection.
async fn gone(socket: &mut TcpStream) {
    let mut buffer = [0; 1024];
    while matches!(socket.read(&mut buffer).await, Ok(n) if n > 0) {}
}

async fn read(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<RecordedRequest> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        more(socket, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse::<usize>().unwrap());
    while buffer.len() < end + length {
        more(socket, buffer).await?;
    }
    let body = buffer[end..end + length].to_vec();
    buffer.drain(..end + length);
    Some(RecordedRequest { method, path, headers, body, at: Instant::now() })
}

async fn more(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 64 * 1024];
    let read = socket.read(&mut piece).await.ok()?;
    buffer.extend_from_slice(&piece[..read]);
    (read > 0).then_some(())
}
