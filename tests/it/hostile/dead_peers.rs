//! Clients that vanish without closing their connection, as in a power or network failure: neither data nor
//! acknowledgements come from them, so only `client_write` detects it.
//!
//! The test sets a minimum `ttl` for packets that the client's socket accepts, which needs no privileges. With the
//! highest minimum, the socket drops all loopback packets. Data that the client has sent must arrive before that;
//! otherwise the client would retransmit it.

use super::stalled_readers::let_go;
use super::{CHAT, full};
use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, plain, role, sse, text};
use crate::harness::{Bench, Provider, until, within};
use bytes::Bytes;
use nix::{setsockopt_impl, sockopt_impl};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Bytes of one piece of text, and number of pieces that a provider would send without flow control: 64 MB.
const PIECE: usize = 8 << 10;
const PIECES: usize = 8 << 10;

sockopt_impl!(
    /// Minimum number of remaining hops (`ttl`) of an accepted packet.
    LeastHops,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    u8
);

/// Makes the client accept and acknowledge no more packets.
fn vanish(socket: &impl AsFd) {
    nix::sys::socket::setsockopt(socket, LeastHops, &u8::MAX).unwrap();
}

/// Returns true if data that was sent from this address is unacknowledged.
fn unheard(from: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        cells[1].ends_with(&format!(":{:04X}", from.port())) && !cells[4].starts_with("00000000:")
    };
    table.lines().skip(1).any(row)
}

fn patience() -> Duration {
    if full() { Duration::from_secs(30) } else { Duration::from_secs(1) }
}

/// Asserts that the gateway noticed the dead client after `client_write`, and not much later: the allowed delay
/// covers the next retransmission or probe, and a busy machine.
fn bounded(what: &str, took: Duration) {
    eprintln!("{what}: gone after {took:.1?}");
    assert!(took >= patience() - Duration::from_millis(100), "{what}: {took:?}");
    assert!(took < patience() * 2 + Duration::from_secs(10), "{what}: {took:?}");
}

async fn start(provider: &Provider, certified: &TestCertificate) -> Running {
    let settings = if full() { "" } else { "[limits]\nclient_write = \"1s\"" };
    let bench = Bench::new().settings(settings).listen(&certified.https());
    bench.provider("a", provider).start().await
}

fn request(running: &Running, body: &serde_json::Value) -> String {
    let (key, body) = (&running.client.key, body.to_string());
    let length = body.len();
    format!(
        "POST {CHAT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

async fn asked(running: &Running, body: &serde_json::Value, marker: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(running.client.address).await.unwrap();
    socket.write_all(request(running, body).as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    within("what it waits for", async {
        while !bytes.windows(marker.len()).any(|window| window == marker) {
            assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "closed");
        }
    })
    .await;
    socket
}

/// Tests that unacknowledged data ends the connection: a small write that fits into the socket buffer, or a larger
/// answer whose writes wait. Meanwhile the gateway reads no more from the provider than the sockets on the way can
/// hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_vanishes_is_let_go_with_its_provider() {
    for pieces in [1, PIECES] {
        let (provider, certified, go) =
            (Provider::start().await, TestCertificate::make(), Arc::new(Notify::new()));
        let mut script = vec![sse(), role(), text("One "), ScriptStep::Wait(go.clone())];
        script.extend(std::iter::repeat_n(text(&"x".repeat(PIECE)), pieces));
        script.push(ScriptStep::Hang);
        provider.always(script);
        let running = start(&provider, &certified).await;
        let socket = asked(&running, &running.ask_stream(), b"One ").await;
        vanish(&socket);
        go.notify_one();
        let (took, tokens) = let_go(&provider, &running, Instant::now()).await;
        bounded(&format!("a reader of {pieces} pieces"), took);
        assert!(tokens > 0 && (tokens as usize) < PIECES * PIECE / 2, "{tokens}");
        until("the permit to be free", || running.gateway.app.metrics.open_connections_gauge().get() == 0)
            .await;
    }
}

/// Tests the keep-alive probes of clients that get no data: an idle connection, one that waits for its answer, and
/// one with HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_clients_that_vanish_are_found_by_probes() {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    provider.then(plain("Hello"));
    provider.always(vec![ScriptStep::Hang]);
    let running = start(&provider, &certified).await;
    let open = running.gateway.app.metrics.open_connections_gauge();
    let secure = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let secured = secure.get_ref().0.local_addr().unwrap();
    let below = secure.get_ref().0.as_fd().try_clone_to_owned().unwrap();
    let (mut send, connection) = h2::client::handshake(secure).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let mut ask = || {
        let head = http::Request::post(format!("https://localhost{CHAT}"));
        let head = head.header("authorization", format!("Bearer {}", running.client.key)).body(()).unwrap();
        let (answer, mut upward) = send.send_request(head, false).unwrap();
        upward.send_data(Bytes::from(running.ask().to_string()), true).unwrap();
        answer
    };
    // A complete answer, so that the gateway has no handshake data left to send.
    let mut first = within("an answer", ask()).await.unwrap().into_body();
    while within("its body", first.data()).await.is_some() {}
    let _second = ask();
    let idle = asked(&running, &serde_json::json!({}), b"\r\n\r\n").await;
    let mut waiting = TcpStream::connect(running.client.address).await.unwrap();
    waiting.write_all(request(&running, &running.ask()).as_bytes()).await.unwrap();
    within("the calls", provider.until_calls(3)).await;
    assert_eq!(open.get(), 3);

    let addresses = [&idle, &waiting].map(|socket| socket.local_addr().unwrap());
    until("all that was sent to arrive", || ![addresses[0], addresses[1], secured].into_iter().any(unheard))
        .await;
    vanish(&idle);
    vanish(&waiting);
    vanish(&below);
    let began = Instant::now();
    until("all three to be found", || open.get() == 0 && running.gateway.app.in_flight_exchanges() == 0)
        .await;
    bounded("silent clients", began.elapsed());
    provider.until_left(2).await;
    driver.abort();
}
