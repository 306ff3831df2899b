//! Providers that flood an HTTP/2 connection with superfluous frames: the request is answered, and the connection ends.

use super::CHAT;
use crate::harness::{Bench, Provider, until, within};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// `:status: 200` and `:status: 103` in HPACK.
const OK: &[u8] = &[0x88];
const EARLY: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
/// Bytes that may be sent on a connection that the gateway continues to read.
const MOST: usize = 8 << 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

/// Flood of a provider: bytes that are written once after a request, and bytes that are repeated, both for the
/// stream's number. With `after_reset`, the flood waits until the gateway has reset the stream.
#[derive(Clone, Copy)]
struct Flood {
    name: &'static str,
    first: fn(u32) -> Vec<u8>,
    again: fn(u32) -> Vec<u8>,
    after_reset: bool,
}

fn floods() -> Vec<Flood> {
    let nothing = |_: u32| Vec::new();
    let flood = |name, first, again| Flood { name, first, again, after_reset: false };
    let head = |stream: u32| frame(HEADERS, END_HEADERS, stream, OK);
    vec![
        flood("informational heads", nothing, |stream| frame(HEADERS, END_HEADERS, stream, EARLY)),
        flood("pings", nothing, |_| frame(PING, 0, 0, &[7; 8])),
        flood("settings", nothing, |_| frame(SETTINGS, 0, 0, &[])),
        flood("windows", nothing, |stream| frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1])),
        flood("frames that nobody knows", nothing, |_| frame(0x42, 0, 0, b"what")),
        flood("empty data", head, |stream| frame(DATA, 0, stream, &[])),
        flood(
            "a head without an end",
            |stream| frame(HEADERS, 0, stream, OK),
            |stream| frame(CONTINUATION, 0, stream, &[0, 1, b'x', 1, b'y']),
        ),
        Flood {
            after_reset: true,
            ..flood("data of a reset stream", nothing, |stream| frame(DATA, 0, stream, &[b' '; 16 << 10]))
        },
        Flood { after_reset: true, ..flood("pings after a reset", nothing, |_| frame(PING, 0, 0, &[7; 8])) },
    ]
}

struct Flooding {
    address: SocketAddr,
    /// Bytes written, and connections that were closed.
    sent: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Flooding {
    async fn start(flood: Flood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, left) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let shared = (sent.clone(), left.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (sent, left) = shared.clone();
                connections.spawn(async move {
                    serve(socket, flood, &sent).await.ok();
                    left.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, sent, left, task }
    }
}

impl Drop for Flooding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut socket: TcpStream, flood: Flood, sent: &AtomicUsize) -> std::io::Result<()> {
    socket.read_exact(&mut [0; 24]).await?;
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let (mut read, mut write) = socket.into_split();
    let (begun, window) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(25 << 20)));
    let (begin, wider) = (begun.clone(), window.clone());
    // The provider reads while it writes. Otherwise the gateway could not send its frames, and would stop for this
    // reason.
    let reader = tokio::spawn(async move {
        loop {
            let mut head = [0; 9];
            if read.read_exact(&mut head).await.is_err() {
                return;
            }
            let [a, b, c, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            if read.read_exact(&mut payload).await.is_err() {
                return;
            }
            match kind {
                DATA | HEADERS if flags & 1 == 1 && !flood.after_reset => begin.notify_one(),
                RST_STREAM if flood.after_reset => begin.notify_one(),
                WINDOW_UPDATE if head[5..9] == [0; 4] => {
                    let more = u32::from_be_bytes(payload[..4].try_into().unwrap()) as usize;
                    wider.fetch_add(more, Ordering::SeqCst);
                }
                _ => {}
            }
        }
    });
    begun.notified().await;
    let mut block = (flood.first)(1);
    loop {
        write.write_all(&block).await?;
        sent.fetch_add(block.len(), Ordering::SeqCst);
        let again = (flood.again)(1);
        block = again.repeat((16 << 10) / again.len().min(16 << 10));
        if again[3] == DATA {
            // Sends data only within the flow-control window; otherwise the connection would end because of that
            // violation.
            let take = |window: usize| window.checked_sub(block.len());
            while window.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
                if reader.is_finished() {
                    return Ok(());
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn superfluous_frames_end_their_connection_after_the_response() {
    let timeouts = r#"timeouts = { connect = "20s", first_byte = "1s", plain = "1s", first_token = "1s", idle = "1s", total = "3s" }"#;
    for flood in floods() {
        let (flooding, good) = (Flooding::start(flood).await, Provider::start().await);
        let lines = format!("http = \"h2\"\n{timeouts}");
        let bench = Bench::new().settings("[routing]\nattempts = 4");
        let bench = bench.provider_at(
            "a",
            &format!("http://{}/v1", flooding.address),
            &lines,
            "price = { input = 0.1, output = 0.1 }",
        );
        let running = bench.provider("b", &good).start().await;
        let body =
            json!({"model": "m:price", "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
        let answer = running.client.post(CHAT, &body).await;
        assert_eq!(
            (answer.status, answer.streamed_text().as_str()),
            (200, "Hello"),
            "{}: {}",
            flood.name,
            answer.text()
        );
        assert_ne!(
            answer.header("x-penstock-attempts"),
            Some("1"),
            "{}: the other was asked first",
            flood.name
        );
        within(flood.name, until("the connection to end", || flooding.left.load(Ordering::SeqCst) > 0)).await;
        let sent = flooding.sent.load(Ordering::SeqCst);
        eprintln!("{}: ended after {sent} bytes", flood.name);
        assert!(sent < MOST, "{}: {sent} bytes were read", flood.name);
        running.stop().await;
    }
}
