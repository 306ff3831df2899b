//! Clients that stop reading: the gateway stops reading from their provider, disconnects them after `client_write`,
//! and charges the delivered output.

use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::gateway::Running;
use crate::harness::script::{Script, ScriptStep, role, sse, text};
use crate::harness::{Bench, Client, Provider, until, within};
use crate::hostile::{CHAT, full};
use bytes::Bytes;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Bytes of one piece of text.
const PIECE: usize = 8 << 10;
/// Number of pieces that a provider would send without flow control: 64 MB.
const PIECES: usize = 8 << 10;
/// Bytes that may remain in sockets: both kernels' buffers on either side of the gateway.
const UNDERWAY: u64 = 32 << 20;

fn endless() -> Script {
    long(PIECES)
}

/// Returns a stream of this number of pieces that does not end.
pub(super) fn long(pieces: usize) -> Script {
    let mut script = vec![sse(), role()];
    script.extend(std::iter::repeat_n(text(&"x".repeat(PIECE)), pieces));
    script.push(ScriptStep::Hang);
    script
}

/// Starts a stream, reads only its beginning, and stays connected; returns the time until the gateway ends the
/// connection. The client detects the end by occasional writes; a read would return the unread data first, and so end
/// the stall.
pub(super) async fn stopped(client: &Client, body: &str, pause: Duration) -> Duration {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut socket = socket.connect(client.address).await.unwrap();
    let head = super::slow_clients::begun(&client.key, body.len());
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut some = [0; 12];
    within("the stream to begin", socket.read_exact(&mut some)).await.unwrap();
    assert_eq!(&some, b"HTTP/1.1 200");
    let began = Instant::now();
    within("a reader that stopped to be let go", async {
        while socket.write_all(b" ").await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    })
    .await;
    began.elapsed()
}

fn patience() -> Duration {
    if full() { Duration::from_secs(30) } else { Duration::from_secs(1) }
}

async fn start() -> (Provider, TestCertificate, Running) {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    provider.always(endless());
    let settings = if full() { "" } else { "[limits]\nclient_write = \"1s\"" };
    let bench = Bench::new().settings(settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    (provider, certified, running)
}

/// Waits until the gateway disconnects the reader; returns the time, and the total charge of its key in micro-credits.
pub(super) async fn let_go(provider: &Provider, running: &Running, began: Instant) -> (Duration, u64) {
    provider.until_left(1).await;
    until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
    let took = began.elapsed();
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains("outcome=\"left\""), "it counts as one that left");
    (took, tokens_charged(running).await)
}

/// Returns the number of tokens that were charged so far.
async fn tokens_charged(running: &Running) -> u64 {
    let metrics = running.admin().get("/metrics").await.text();
    let lines = metrics.lines().filter(|line| line.starts_with("gen_ai_client_token_usage_sum"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

fn bounded(what: &str, took: Duration, read: u64, tokens: u64) {
    eprintln!("{what}: let go after {took:.1?}, {read} bytes delivered, {tokens} tokens charged");
    assert!(took >= patience() - Duration::from_millis(100), "{took:?}");
    assert!(took < patience() * 2 + Duration::from_secs(10), "{took:?}");
    // At most the sent output is charged. The sockets limit it to less than half of the output that the provider
    // would send.
    assert!(tokens > 0, "what was delivered is charged");
    assert!((tokens as usize) < PIECES * PIECE / 2, "{tokens}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http1_a_reader_that_stops_is_let_go() {
    let (provider, _certified, running) = start().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut socket = socket.connect(running.client.address).await.unwrap();
    let body = running.ask_stream().to_string();
    let key = &running.client.key;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut some = vec![0; 64 << 10];
    within("the stream to begin", socket.read_exact(&mut some)).await.unwrap();
    let began = Instant::now();
    let (took, tokens) = let_go(&provider, &running, began).await;
    bounded("HTTP/1.1", took, some.len() as u64, tokens);
    // After the end of the connection, the client can read only the bytes that were in the socket buffers.
    let mut rest = 0;
    while let Ok(read @ 1..) = within("the rest", socket.read(&mut some)).await {
        rest += read as u64;
    }
    assert!(rest < UNDERWAY, "{rest} bytes were on their way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_a_reader_that_stops_is_let_go_and_its_neighbours_go_on() {
    let (provider, certified, running) = start().await;
    let secure = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let (send, connection) = h2::client::handshake(secure).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let request = |body: &serde_json::Value| {
        let request = http::Request::post(format!("https://localhost{CHAT}"))
            .header("authorization", format!("Bearer {}", running.client.key))
            .body(())
            .unwrap();
        (request, Bytes::from(body.to_string()))
    };
    let ask = |mut send: h2::client::SendRequest<Bytes>, (request, body): (http::Request<()>, Bytes)| async move {
        let (answer, mut upward) = send.send_request(request, false).unwrap();
        upward.send_data(body, true).unwrap();
        within("a head", answer).await
    };
    let stopped = ask(send.clone(), request(&running.ask_stream())).await.unwrap();
    assert_eq!(stopped.status(), 200);
    let began = Instant::now();
    // The window of the stream is 64 KiB and is never opened; another stream of the same connection is served
    // meanwhile.
    provider.then(crate::harness::script::plain("Hello"));
    let other = ask(send.clone(), request(&running.ask())).await.unwrap();
    assert_eq!(other.status(), 200);
    let (took, tokens) = let_go(&provider, &running, began).await;
    bounded("HTTP/2", took, 65_535, tokens);
    let mut body = stopped.into_body();
    let mut read = 0;
    let end = loop {
        match within("the rest", body.data()).await {
            Some(Ok(piece)) => read += piece.len(),
            other => break other,
        }
    };
    assert!(matches!(end, Some(Err(_))), "it ended with a reset, not well");
    assert!(read <= 65_535, "{read}");
    driver.abort();
}

/// A client whose stream window stays closed receives the head and no content, and is not charged: if it resets the
/// stream, and if the gateway ends it. From the first byte of content on, it is charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_a_client_without_content_is_not_charged() {
    let (provider, certified, running) = start().await;
    for (window, resets, is_charged) in
        [(0, true, false), (0, false, false), (1, true, true), (1, false, true), (1 << 16, true, true)]
    {
        let calls = provider.calls() + 1;
        let secure = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
        let mut builder = h2::client::Builder::new();
        let (mut send, connection) =
            builder.initial_window_size(window).handshake::<_, Bytes>(secure).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        let request = http::Request::post(format!("https://localhost{CHAT}"))
            .header("authorization", format!("Bearer {}", running.client.key))
            .body(())
            .unwrap();
        let before = tokens_charged(&running).await;
        let (answer, mut upward) = send.send_request(request, false).unwrap();
        upward.send_data(Bytes::from(running.ask_stream().to_string()), true).unwrap();
        let answer = within("a head", answer).await.unwrap();
        assert_eq!(answer.status(), 200);
        // The window is not opened again, because the bytes that are read are not released.
        let mut body = answer.into_body();
        if window > 0 {
            assert!(!within("content", body.data()).await.unwrap().unwrap().is_empty());
        }
        if resets {
            upward.send_reset(h2::Reason::CANCEL);
        }
        provider.until_left(calls).await;
        until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
        let charged = tokens_charged(&running).await - before;
        assert_eq!(charged > 0, is_charged, "{window} {resets}: {charged}");
        driver.abort();
    }
}

/// Tests a client that reads no bytes from its socket at all: the gateway ends this connection too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_never_read_ends() {
    let (provider, _certified, running) = start().await;
    // The client sends requests and never reads, so the large answers fill the socket.
    provider.always(crate::harness::script::plain(&"y".repeat(1 << 20)));
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut socket = socket.connect(running.client.address).await.unwrap();
    let body = running.ask().to_string();
    let key = &running.client.key;
    let one = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let open = running.gateway.app.metrics.open_connections_gauge();
    let mut calls = 0;
    within("the connection to be closed", async {
        loop {
            if socket.write_all(one.as_bytes()).await.is_err() {
                return;
            }
            calls += 1;
            until("the answer to be on its way, or given up", || {
                open.get() == 0
                    || (provider.calls() >= calls && running.gateway.app.in_flight_exchanges() == 0)
            })
            .await;
            if open.get() == 0 {
                return;
            }
        }
    })
    .await;
    until("the permit to be free", || open.get() == 0).await;
    assert_eq!(running.gateway.app.in_flight_exchanges(), 0);
}
