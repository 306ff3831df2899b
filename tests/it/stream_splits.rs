//! Stream events arrive unchanged however their bytes are split: 20,000 events of each pair of dialects, a million with
//! `PENSTOCK_FULL=1`, generated and compared one after the other.

use crate::harness::client::OpenResponse;
use crate::harness::{Bench, is_long_run, within};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Maximum number of bytes that the test has read but not compared yet.
const HELD: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ProviderDialect {
    Chat,
    Messages,
    Responses,
}
use ProviderDialect::{Chat, Messages, Responses};

/// Returns the text of one event: all are different, and some look like the syntax of a stream.
fn piece(number: usize) -> String {
    const TAILS: [&str; 11] = [
        "",
        " and so on",
        "é€😀",
        " \"quoted\" \\ back",
        "\n\n",
        "\r\n\r\ndata: [DONE]\r\n\r\n",
        "\u{2028}\u{feff}\0",
        ": a comment",
        "</s>event: error\ndata: {}",
        "0\r\n\r\n",
        "\\ud83d\\n",
    ];
    let long = if number.is_multiple_of(97) { "y".repeat(number % 5_000) } else { String::new() };
    format!("{number}{}{long}", TAILS[number % TAILS.len()])
}

/// Pseudo-random numbers of a fixed seed.
struct SeededRandom(u64);

impl SeededRandom {
    /// Returns a random number from one to `most`.
    fn to(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) as usize % most
    }

    /// Returns a random size for the next piece: many pieces are shorter than a line, some contain several events.
    fn cut(&mut self) -> usize {
        match self.to(8) {
            1..=3 => self.to(9),
            4..=7 => self.to(300),
            _ => self.to(6_000),
        }
    }
}

/// Stream of this number of events, generated on demand.
struct Events {
    speaks: ProviderDialect,
    next: usize,
    count: usize,
}

impl Events {
    /// Returns the next bytes of the stream: its start, an event with text, or its end; `None` after the end.
    fn next(&mut self, draws: &mut SeededRandom) -> Option<Vec<u8>> {
        let at = self.next.checked_sub(1);
        self.next += 1;
        let values = match (self.speaks, at) {
            (_, Some(at)) if at > self.count => return None,
            (Chat, None) => vec![chat(&json!({"role": "assistant", "content": ""}), Value::Null)],
            (Messages, None) => vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
                    "role": "assistant", "model": "theirs", "content": [], "stop_reason": null,
                    "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}}),
            ],
            (Responses, None) => vec![
                json!({"type": "response.created", "response": {"id": "resp_1", "object": "response",
                    "status": "in_progress", "output": []}}),
                json!({"type": "response.output_item.added", "output_index": 0,
                    "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}}),
            ],
            (Responses, Some(at)) if at < self.count => {
                vec![json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
                "content_index": 0, "delta": piece(at)})]
            }
            (Responses, Some(_)) => vec![json!({"type": "response.completed", "response": {"id": "resp_1",
                "object": "response", "status": "completed", "output": [],
                "usage": {"input_tokens": 3, "output_tokens": self.count}}})],
            (Chat, Some(at)) if at < self.count => vec![chat(&json!({"content": piece(at)}), Value::Null)],
            (Messages, Some(at)) if at < self.count => {
                vec![json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": piece(at)}})]
            }
            (Chat, Some(_)) => vec![
                chat(&json!({}), json!("stop")),
                json!({"id": "p", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
                    "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": self.count,
                    "total_tokens": self.count + 3}}),
                json!("[DONE]"),
            ],
            (Messages, Some(_)) => vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                    "usage": {"output_tokens": self.count}}),
                json!({"type": "message_stop"}),
            ],
        };
        Some(values.iter().flat_map(|value| written(value, draws)).collect())
    }
}

fn chat(delta: &Value, finish: Value) -> Value {
    json!({"id": "p", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// Returns an event in the format of one of several engines.
fn written(value: &Value, draws: &mut SeededRandom) -> Vec<u8> {
    let end = if draws.to(2) == 1 { "\n" } else { "\r\n" };
    let name = value["type"].as_str().map(|name| format!("event: {name}{end}")).unwrap_or_default();
    let data = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let blank = if draws.to(5) == 1 { "" } else { " " };
    format!("{name}data:{blank}{data}{end}{end}").into_bytes()
}

/// Starts a provider of one stream, split by random numbers from the seed.
async fn provider(http2: bool, speaks: ProviderDialect, count: usize, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let events = Events { speaks, next: 0, count };
        if http2 {
            over_h2(socket, events, SeededRandom(seed)).await
        } else {
            over_h1(socket, events, SeededRandom(seed)).await
        }
    });
    address
}

/// Bytes of a stream, cut into pieces of random size regardless of its events.
struct SplitStream {
    events: Events,
    draws: SeededRandom,
    held: BytesMut,
}

impl SplitStream {
    fn next(&mut self) -> Option<Bytes> {
        let size = self.draws.cut();
        while self.held.len() < size {
            match self.events.next(&mut self.draws) {
                Some(event) => self.held.extend_from_slice(&event),
                None => break,
            }
        }
        let size = size.min(self.held.len());
        (size > 0).then(|| self.held.split_to(size).freeze())
    }
}

async fn over_h1(mut socket: TcpStream, events: Events, draws: SeededRandom) {
    let (mut asked, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    let whole = |asked: &[u8]| {
        let text = String::from_utf8_lossy(asked).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.split_once("content-length: ").unwrap().1.split("\r\n").next().unwrap();
        body.len() >= length.parse().unwrap()
    };
    while !whole(&asked) {
        let read = socket.read(&mut buffer).await.unwrap();
        assert!(read > 0, "a request comes whole");
        asked.extend_from_slice(&buffer[..read]);
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut pieces = SplitStream { events, draws, held: BytesMut::new() };
    while let Some(piece) = pieces.next() {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
        // Writes each chunk in two parts, so that reads of the gateway do not end at chunk boundaries.
        let (first, second) = chunk.split_at(pieces.draws.to(chunk.len()));
        for part in [first, second] {
            socket.write_all(part).await.unwrap();
        }
    }
    socket.write_all(b"0\r\n\r\n").await.unwrap();
    while matches!(socket.read(&mut buffer).await, Ok(1..)) {}
}

async fn over_h2(socket: TcpStream, events: Events, draws: SeededRandom) {
    let mut connection = h2::server::handshake(socket).await.unwrap();
    let (mut request, mut respond) = connection.accept().await.unwrap().unwrap();
    // Drives the connection in the background; there are no further requests to accept.
    tokio::spawn(async move { connection.accept().await.is_none() });
    while request.body_mut().data().await.is_some() {}
    let head = http::Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    let mut pieces = SplitStream { events, draws, held: BytesMut::new() };
    while let Some(mut piece) = pieces.next() {
        while !piece.is_empty() {
            stream.reserve_capacity(piece.len());
            let capacity = poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
            stream.send_data(piece.split_to(capacity.min(piece.len())), false).unwrap();
        }
    }
    stream.send_data(Bytes::new(), true).unwrap();
    poll_fn(|cx| stream.poll_reset(cx)).await.ok();
}

/// The events of an answer, read one after the other.
struct EventReader {
    open: OpenResponse,
    wire: BytesMut,
    body: BytesMut,
    /// Bytes left of the chunk.
    left: usize,
    over: bool,
}

impl EventReader {
    async fn begin(mut open: OpenResponse) -> Self {
        within("a head", open.until("\r\n\r\n")).await;
        let bytes = std::mem::take(&mut open.bytes);
        let end = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{}", String::from_utf8_lossy(&bytes));
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        let mut heard = Self { open, wire: bytes[end..].into(), body: BytesMut::new(), left: 0, over: false };
        heard.unchunk();
        heard
    }

    /// Removes the chunk framing from the received bytes. The end of a chunk is an empty line before the size of the
    /// next one.
    fn unchunk(&mut self) {
        while !self.over {
            if self.left > 0 {
                let here = self.left.min(self.wire.len());
                self.left -= here;
                self.body.extend_from_slice(&self.wire.split_to(here));
            }
            let Some(end) = memchr::memmem::find(&self.wire, b"\r\n").filter(|_| self.left == 0) else {
                return;
            };
            let line = self.wire.split_to(end + 2);
            if end > 0 {
                self.left = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
                self.over = self.left == 0;
            }
        }
    }

    /// Contents of the next event, without `[DONE]`.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = memchr::memmem::find(&self.body, b"\n\n") {
                let event = self.body.split_to(end + 2);
                let mut lines = event[..].split(|byte| *byte == b'\n');
                let data = lines.find_map(|line| line.strip_prefix(b"data: "));
                match data {
                    None | Some(b"[DONE]") => continue,
                    Some(data) => return Some(serde_json::from_slice(data).unwrap()),
                }
            }
            if self.over {
                assert!(self.body.is_empty(), "it ends within an event");
                return None;
            }
            assert!(within("more of the answer", self.open.more()).await, "the answer is cut");
            self.wire.extend_from_slice(&std::mem::take(&mut self.open.bytes));
            self.unchunk();
            assert!(self.wire.len() + self.body.len() <= HELD, "an event is larger than any that was sent");
        }
    }
}

/// Sends one stream through its own gateway, and compares it while it arrives.
async fn through(client: ProviderDialect, theirs: ProviderDialect, http2: bool, count: usize) {
    let seed = 20_261_123 + count as u64;
    let address = provider(http2, theirs, count, seed).await;
    let http = if http2 { "h2" } else { "h1" };
    let dialect = match theirs {
        Chat => "chat",
        Messages => "messages",
        Responses => "responses",
    };
    let lines = format!(
        "http = \"{http}\"\ndialects = [\"{dialect}\"]\n\
         timeouts = {{ connect = \"20s\", first_byte = \"40s\", first_token = \"40s\", idle = \"40s\", total = \"2h\" }}"
    );
    let bench = Bench::new().settings("[routing]\ntotal = \"2h\"").model("context_length = 100000000");
    let running = bench.provider_at("a", &format!("http://{address}/v1"), &lines, "").start().await;
    let mut ask = running.ask_stream();
    ask["max_tokens"] = json!(count * 4);
    let path = if client == Chat { "/v1/chat/completions" } else { "/v1/messages" };
    let began = Instant::now();
    let open = running.client.open("POST", path, &[], ask.to_string().as_bytes()).await;
    let mut heard = EventReader::begin(open).await;
    let (mut next, mut bytes) = (0, 0);
    while let Some(event) = heard.next().await {
        let text = match client {
            Chat => &event["choices"][0]["delta"]["content"],
            Messages | Responses => &event["delta"]["text"],
        };
        let Some(text) = text.as_str().filter(|text| !text.is_empty()) else {
            assert!(event.get("error").is_none(), "{event}");
            continue;
        };
        assert_eq!(text, piece(next), "{next} of {count}, {client:?} to {theirs:?} over {http}");
        bytes += text.len();
        next += 1;
    }
    assert_eq!(next, count, "{client:?} to {theirs:?} over {http}");
    eprintln!(
        "{client:?} to {theirs:?} over {http}: {next} events of {bytes} bytes, each as it was sent, in {:.1?}",
        began.elapsed()
    );
    running.stop().await;
}

async fn all(http2: bool) {
    let count = if is_long_run() { 1_000_000 } else { 20_000 };
    for theirs in [Chat, Messages, Responses] {
        for client in [Chat, Messages] {
            Box::pin(through(client, theirs, http2, count)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_http1_event_arrives_unchanged_at_every_split() {
    all(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_http2_event_arrives_unchanged_at_every_split() {
    all(true).await;
}
