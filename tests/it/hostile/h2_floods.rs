//! Floods of HTTP/2 frames: each flood ends its connection or is bounded, memory stays small, and other requests are
//! answered.

use super::raw_h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, PRIORITY, RST, Raw, SETTINGS,
    WINDOW, field, frame, get, indexed_field, next, pseudo, setting,
};
use crate::harness::certificates::TestCertificate;
use crate::harness::process::{Home, catalogue};
use crate::harness::{Client, Provider};
use crate::hostile::{CHAT, ask, full, honest, unharmed};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// Allowed growth of the process, in KiB.
const GROWTH: u64 = 64 << 10;
/// Frames of one write.
const BURST: usize = 64;

type InitialFrames = Box<dyn Fn(&str) -> Vec<u8> + Send + Sync>;
type RepeatedFrames = Box<dyn Fn(u32, &str) -> Vec<u8> + Send + Sync>;

/// Kind of flood: bytes written once, and bytes that are repeated with an increasing stream number.
struct Flood {
    name: &'static str,
    first: InitialFrames,
    again: RepeatedFrames,
    /// True if the gateway must always close the connection, even if the machine is too busy for a strong flood.
    ended: bool,
}

fn flood(
    name: &'static str,
    ended: bool,
    first: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    again: impl Fn(u32, &str) -> Vec<u8> + Send + Sync + 'static,
) -> Flood {
    Flood { name, first: Box::new(first), again: Box::new(again), ended }
}

fn asks(stream: u32, key: &str, flags: u8) -> Vec<u8> {
    let block = [pseudo("POST", CHAT), field("authorization", &format!("Bearer {key}"))].concat();
    frame(HEADERS, END_HEADERS | flags, stream, &block)
}

fn floods() -> Vec<Flood> {
    let id = |number: u32| number * 2 + 1;
    let nothing = |_: &str| Vec::new();
    // A body that is awaited.
    let open = |key: &str| asks(1, key, 0);
    let half = |_: &str| frame(HEADERS, END_STREAM, 1, &pseudo("GET", "/"));
    vec![
        flood("rapid reset", true, nothing, move |n, key| {
            [asks(id(n), key, 0), frame(RST, 0, id(n), &[0, 0, 0, 8])].concat()
        }),
        flood("rapid reset of whole requests", true, nothing, move |n, key| {
            let body = frame(DATA, END_STREAM, id(n), ask("Hi").as_bytes());
            [asks(id(n), key, 0), body, frame(RST, 0, id(n), &[0, 0, 0, 8])].concat()
        }),
        flood("resets that the gateway is made to send", true, nothing, move |n, key| {
            [asks(id(n), key, 0), frame(WINDOW, 0, id(n), &[0; 4])].concat()
        }),
        flood("resets by a window too wide", true, nothing, move |n, key| {
            let wide = frame(WINDOW, 0, id(n), &0x7fff_ffff_u32.to_be_bytes());
            [asks(id(n), key, 0), wide.clone(), wide].concat()
        }),
        flood("resets by a body of the wrong length", true, nothing, move |n, key| {
            let block =
                [pseudo("POST", CHAT), field("content-length", "5"), field("authorization", key)].concat();
            [frame(HEADERS, END_HEADERS, id(n), &block), frame(DATA, END_STREAM, id(n), b"x")].concat()
        }),
        flood("malformed heads", true, nothing, move |n, _| {
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                id(n),
                &[pseudo("GET", "/"), field("connection", "x")].concat(),
            )
        }),
        flood("headers without an end", true, half, |_, _| frame(CONTINUATION, 0, 1, &field("x", "y"))),
        flood("headers without an end or a byte", true, half, |_, _| frame(CONTINUATION, 0, 1, b"")),
        flood("a bomb of headers", false, nothing, move |n, _| {
            let bomb =
                [pseudo("GET", "/"), indexed_field("x", &"y".repeat(3500)), vec![0xbe; 12_000]].concat();
            frame(HEADERS, END_HEADERS | END_STREAM, id(n), &bomb)
        }),
        flood("empty data", true, open, |_, _| frame(DATA, 0, 1, b"")),
        flood("data of one byte", false, open, |_, _| frame(DATA, 0, 1, b" ")),
        flood("pings", true, nothing, |n, _| frame(PING, 0, 0, &u64::from(n).to_be_bytes())),
        flood("settings", true, nothing, |n, _| frame(SETTINGS, 0, 0, &setting(4, 65_535 + n % 2))),
        flood("priorities", true, nothing, move |n, _| frame(PRIORITY, 0, id(n), &[0, 0, 0, 0, 9])),
        flood("windows", true, nothing, |_, _| frame(WINDOW, 0, 0, &[0, 0, 0, 1])),
        flood("unknown frames", true, nothing, |_, _| frame(0x42, 0, 0, b"what")),
        flood("requests that are refused and never read", false, nothing, move |n, _| get(id(n))),
    ]
}

/// Floods over one connection until it ends or the time is over; returns true if it ended, and the number of frames.
async fn pour(
    flood: &Flood,
    address: std::net::SocketAddr,
    root: &std::path::Path,
    key: &str,
    until: Instant,
) -> (bool, usize) {
    let (mut read, mut write) = Raw::connect(address, root).await.split();
    // The client reads, because a full socket would stop the flood. One kind of flood tests a client that never
    // reads.
    let reads = !flood.name.ends_with("never read");
    let reader = tokio::spawn(async move {
        while reads && next(&mut read).await.is_some() {}
        std::future::pending::<()>().await;
    });
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, b""), &(flood.first)(key)].concat();
    let mut sent = 0;
    let pouring = async {
        let mut bytes = begin;
        loop {
            for _ in 0..BURST {
                bytes.extend((flood.again)(sent as u32, key));
                sent += 1;
            }
            if write.write_all(&bytes).await.is_err() || write.flush().await.is_err() {
                return true;
            }
            bytes.clear();
        }
    };
    let ended = tokio::time::timeout_at(until.into(), pouring).await.unwrap_or(false);
    reader.abort();
    (ended, sent)
}

/// Target of a flood, and its duration.
struct Target {
    address: std::net::SocketAddr,
    root: std::path::PathBuf,
    key: String,
    lasts: Duration,
}

/// Floods until the time is over; connects again whenever the connection ends. Returns the number of ended
/// connections, and the number of frames sent.
async fn pour_on(flood: Flood, target: Target) -> (usize, usize) {
    let Target { address, root, key, lasts } = target;
    let until = Instant::now() + lasts;
    let (mut ended, mut sent) = (0, 0);
    while Instant::now() < until || (flood.ended && ended == 0) {
        let by = if flood.ended { Instant::now() + Duration::from_secs(20) } else { until };
        let (end, frames) = pour(&flood, address, &root, &key, by).await;
        assert!(end || !flood.ended, "{}: after {frames} frames the connection still stood", flood.name);
        ended += usize::from(end);
        sent += frames;
    }
    (ended, sent)
}

/// Starts the flood in its own thread, so that its processor time does not delay the honest requests. The long form
/// of the test measures the honest requests. There the flood gets the lowest priority, so that it takes only the
/// remaining processor time, as if it came from another machine.
fn flooding(flood: Flood, target: Target) -> std::thread::JoinHandle<(usize, usize)> {
    std::thread::spawn(move || {
        if full() {
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            let mut renice = Command::new("renice");
            renice.args(["-n", "19", "-p"]).arg(thread.file_name().unwrap()).stdout(Stdio::null());
            assert!(renice.status().unwrap().success(), "the flood cannot be made the last in turn");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(pour_on(flood, target))
    })
}

/// The sum of a metric's series.
async fn metric(client: &Client, name: &str) -> f64 {
    let text = client.get("/metrics").await.text();
    let own = |line: &&str| line.starts_with(name);
    text.lines().filter(own).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_ends_its_connection_and_nothing_grows() {
    let (provider, certified, home) = (Provider::start().await, TestCertificate::make(), Home::new());
    let https = crate::harness::process::address();
    home.write(&format!(
        "[limits]\nh2_frames = {}\n{}\n[listen.https]\naddress = \"{https}\"\ncertificate = {:?}\nkey = {:?}\n",
        // The limit of the short form is low, because it may run on a machine that is too busy for a strong flood.
        if full() { 2000 } else { 100 },
        catalogue(&provider, ""),
        certified.chain,
        certified.key
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    let before = honest(&client, if full() { 2000 } else { 100 }, || true).await;
    let ask: Value = serde_json::from_str(&ask("Hi")).unwrap();
    let (lasts, each) = if full() { (Duration::from_secs(60), 500) } else { (Duration::from_millis(600), 5) };
    let idle = process.memory("VmRSS");
    for flood in floods() {
        let name = flood.name;
        let root = certified.root.clone();
        let target = Target { address: https, root, key: client.key.clone(), lasts };
        let pouring = flooding(flood, target);
        let during = honest(&client, each, || pouring.is_finished()).await;
        let (ended, sent) = pouring.join().unwrap();
        let grown = process.memory("VmHWM").saturating_sub(idle);
        eprintln!("{name}: {sent} frames, {ended} connections ended, grown by at most {grown} KiB");
        assert!(grown < GROWTH, "{name}: grown by {grown} KiB from {idle} KiB");
        unharmed(name, &before, &during);
    }
    // All work started by the flood has ended, and the gateway is as before.
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    let admin = home.admin();
    crate::harness::within("the connections to be over", async {
        while metric(&admin, "penstock_requests_open").await > 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(metric(&admin, "penstock_connections_refused_total").await > 0.0, "floods are counted");
}

/// Tests streams whose window stays closed: their number and memory are limited, and `client_write` ends them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_stays_shut_holds_little_and_not_for_long() {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    // A short `keep_alive`: the connection becomes idle when its streams have ended, and the default is longer than a
    // test waits.
    let write = if full() { "30s" } else { "1s" };
    let settings = &format!("[limits]\nclient_write = \"{write}\"\nkeep_alive = \"2s\"");
    let bench = crate::harness::Bench::new().settings(settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    provider.always(crate::harness::script::plain(&"y".repeat(256 << 10)));
    let mut raw = Raw::connect(running.gateway.https_address.unwrap(), &certified.root).await;
    raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, &setting(4, 0))].concat()).await;
    for number in 0..120_u32 {
        let stream = number * 2 + 1;
        let body = frame(DATA, END_STREAM, stream, ask("Hi").as_bytes());
        raw.send(&[asks(stream, &running.client.key, 0), body].concat()).await;
    }
    let (mut heads, mut resets) = (0, 0);
    let began = Instant::now();
    while let Some(frame) = raw.hear().await {
        heads += usize::from(frame.kind == HEADERS);
        resets += usize::from(frame.kind == RST);
        assert!(frame.kind != DATA || frame.payload.is_empty(), "the window is shut");
    }
    eprintln!(
        "windows that stay shut: {heads} answers begun, {resets} streams reset, over after {:.1?}",
        began.elapsed()
    );
    assert!(heads <= 100 && heads + resets >= 100, "{heads} {resets}");
    assert!(provider.calls() <= 100);
    assert_eq!(running.gateway.app.in_flight_exchanges(), 0);
    assert_eq!(running.chat().await.status, 200);
}
