//! Memory of clients before authentication, compared with the figures of `penstock check`; and tests that the streams
//! of one connection do not block each other.

use super::raw_h2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST, Raw, SETTINGS, field, frame,
    pseudo, setting,
};
use crate::files;
use crate::harness::certificates::TestCertificate;
use crate::harness::process::{Home, catalogue};
use crate::harness::script::{held, plain};
use crate::harness::{Bench, Client, Provider, until, within};
use crate::hostile::stream_limits::{begun, whole};
use crate::hostile::{CHAT, ask, honest};
use std::process::Output;
use std::sync::Arc;
use tokio::sync::Notify;

/// Connections of the attack.
const CONNECTIONS: usize = 16;
/// Maximum memory that an unoptimised build may need in addition to the counted memory, in KiB.
const BESIDE: u64 = 8 << 10;

/// Number of KiB in a line of the output of `penstock check`.
fn check_figure(check: &Output, line: &str) -> u64 {
    let text = String::from_utf8(check.stdout.clone()).unwrap();
    let words = text.lines().find_map(|row| row.trim().strip_prefix(line)).expect(line);
    let mut words = words.split_whitespace();
    let number: f64 = words.next().unwrap().parse().unwrap();
    let unit = [("KiB", 1.0), ("MiB", 1024.0)].iter().find(|(name, _)| words.clone().next() == Some(name));
    (number * unit.unwrap().1) as u64
}

/// Opens a connection that sends a hundred requests with the largest allowed heads, sends as many body bytes in small
/// frames as flow control allows, and accepts no answers.
async fn greedy(address: std::net::SocketAddr, certified: &TestCertificate) -> Raw {
    let mut raw = Raw::connect(address, &certified.root).await;
    raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, &setting(4, 0))].concat()).await;
    let block = [pseudo("POST", "/v1/nothing"), field("x-greed", &"g".repeat(31 << 10))].concat();
    for stream in (1..200).step_by(2) {
        let small = frame(DATA, 0, stream, &[b' '; 32]).repeat(20);
        raw.send(&[frame(HEADERS, END_HEADERS, stream, &block), small].concat()).await;
    }
    raw
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_clients_stay_within_the_memory_of_check() {
    let (provider, certified, home) = (Provider::start().await, TestCertificate::make(), Home::new());
    let https = crate::harness::process::address();
    home.write(&format!(
        "[limits]\nconnections = {}\n[overload]\nrequests = 20\nqueue = 20\n[process]\nthreads = 2\n{}\n[listen.https]\n\
         address = \"{https}\"\ncertificate = {:?}\nkey = {:?}\n",
        CONNECTIONS + 8,
        catalogue(&provider, ""),
        certified.chain,
        certified.key
    ));
    let check = home.command(&["check"]);
    let most = check_figure(&check, "connections") + check_figure(&check, "heads") + BESIDE;
    let process = home.run().await;
    let (client, _) = home.key();
    honest(&client, 5, || true).await;
    let idle = process.memory("VmRSS");
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(greedy(https, &certified).await);
    }
    let admin = home.admin();
    within("heads to be refused", async {
        while refused(&admin).await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let grown = process.memory("VmHWM").saturating_sub(idle);
    eprintln!("{CONNECTIONS} connections of 100 heads: grown by {grown} KiB of {most} that check says");
    assert!(grown < most, "grown by {grown} KiB, and check says {most}");
    assert_eq!(client.post(CHAT, &serde_json::from_str(&ask("Hi")).unwrap()).await.status, 200);
    drop(held);
}

/// Number of HTTP/2 requests that were refused because their heads exceeded the memory bound.
async fn refused(admin: &Client) -> u64 {
    let text = admin.get("/metrics").await.text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("penstock_connections_refused_total{reason=\"heads\"} "));
    line.map_or(0, |number| number.parse().unwrap())
}

/// Gateway with a single permit, which a request holds until notified.
async fn full_gateway(
    settings: &str,
) -> (crate::harness::gateway::Running, Provider, TestCertificate, Arc<Notify>) {
    let (provider, certified, go) =
        (Provider::start().await, TestCertificate::make(), Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let settings = format!("[overload]\nrequests = 1\nwait = \"20s\"\n{settings}");
    let bench = Bench::new().settings(&settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let (client, ask) = (running.client.clone(), running.ask());
    tokio::spawn(async move { client.post(CHAT, &ask).await });
    provider.until_calls(1).await;
    (running, provider, certified, go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_given_up_and_ends_late_holds_up_no_other() {
    let (running, _provider, certified, go) = full_gateway("[limits]\nh2_streams = 2").await;
    let key = running.client.key.clone();
    let waiting = || running.gateway.app.admission.load_status().waiting;
    let mut raw = Raw::begun(running.gateway.https_address.unwrap(), &certified.root).await;
    raw.send(&[whole(1, &key), whole(3, &key)].concat()).await;
    until("two to wait", || waiting() == 2).await;
    // The gateway does not detect the reset of the queued request yet, but the client may already start another
    // stream.
    raw.send(&[frame(RST, 0, 3, &[0, 0, 0, 8]), whole(5, &key)].concat()).await;
    raw.send(&frame(PING, 0, 0, b"are you?")).await;
    while let Some(heard) = raw.hear().await {
        if heard.kind == PING && heard.flags & ACK != 0 {
            break;
        }
        assert_ne!(heard.kind, GOAWAY);
    }
    assert!(waiting() >= 2, "nobody's turn has come meanwhile");
    go.notify_one();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_small_frames_may_wait_in_the_queue() {
    let (running, provider, certified, go) = full_gateway("").await;
    let mut raw = Raw::begun(running.gateway.https_address.unwrap(), &certified.root).await;
    let body = ask(&"word ".repeat(12_000));
    assert!(body.len() < 65_000, "it fits the window");
    raw.send(&begun(1, &running.client.key)).await;
    for piece in body.as_bytes().chunks(32) {
        raw.send(&frame(DATA, 0, 1, piece)).await;
    }
    raw.send(&frame(DATA, END_STREAM, 1, b"")).await;
    until("it to wait", || running.gateway.app.admission.load_status().waiting == 1).await;
    provider.always(plain("Hello"));
    go.notify_one();
    while let Some(heard) = raw.hear().await {
        assert_ne!(heard.kind, GOAWAY, "{:?}", heard.payload);
        if heard.kind == DATA && heard.flags & END_STREAM != 0 {
            return;
        }
    }
    panic!("the connection ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unread_file_counts_towards_the_byte_limit_while_it_is_sent() {
    let certified = TestCertificate::make();
    let provider = Provider::start().await;
    let bench = Bench::new().listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let file = files::id(&files::uploaded(&running.client, &files::lines(3_000)).await);
    let mut raw = Raw::connect(running.gateway.https_address.unwrap(), &certified.root).await;
    raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, &setting(4, 0))].concat()).await;
    let key = field("authorization", &format!("Bearer {}", running.client.key));
    for stream in [1, 3, 5] {
        let block = [pseudo("GET", &format!("/v1/files/{file}/content")), key.clone()].concat();
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)).await;
    }
    let bytes = || running.gateway.app.admission.load_status().bytes;
    until("three pieces to be held", || bytes() == 3 * (256 << 10)).await;
    drop(raw);
    until("them to be given back", || bytes() == 0).await;
}
