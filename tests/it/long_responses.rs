//! Long responses: an image may take minutes without a byte. Meanwhile the system sends TCP keep-alive probes on both
//! connections, and no timeout of the gateway fires before its configured time.

use crate::harness::script::{ScriptStep, json_answer};
use crate::harness::{Bench, Provider, until, within};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const PATH: &str = "/v1/images/generations";

/// Kernel timers of the connections of this process: own port, other port, kind, and ticks until the timer fires.
/// Kind 2 is the keep-alive timer; it exists only with SO_KEEPALIVE.
fn timers() -> Vec<(u16, u16, u8, u64)> {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |end: &str| u16::from_str_radix(end.split(':').nth(1).unwrap(), 16).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (kind, left) = cells[5].split_once(':').unwrap();
        let left = u64::from_str_radix(left, 16).unwrap();
        (port(cells[1]), port(cells[2]), u8::from_str_radix(kind, 16).unwrap(), left)
    };
    table.lines().skip(1).map(row).collect()
}

/// Waits until this connection has a keep-alive timer that fires within 20 seconds (2,000 ticks of a hundredth).
async fn until_probed(what: &str, own: SocketAddr, other: Option<SocketAddr>) {
    let probed = |(from, to, kind, left): (u16, u16, u8, u64)| {
        let both = from == own.port() && other.is_none_or(|other| to == other.port());
        both && kind == 2 && left <= 2_000
    };
    until(what, || timers().into_iter().any(probed)).await;
}

/// Waits for one second by the gateway's clock: opens a connection that the gateway closes after an idle second.
async fn idle_second(address: SocketAddr) {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(b"GET /v1/models HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    within("an idle connection to be closed", socket.read_to_end(&mut bytes)).await.unwrap();
    assert!(!bytes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drawing_that_takes_its_time_arrives_over_probed_connections() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    let drawn = json_answer(200, &json!({"created": 1, "data": [{"b64_json": "iVBORw0KGgo="}]}));
    provider.then([vec![ScriptStep::Wait(go.clone())], drawn].concat());
    // All timeouts are one second, except the timeout for the provider's answer.
    let running = Bench::new()
        .settings(
            "[limits]\nrequest_head = \"1s\"\nbody_idle = \"1s\"\nbody = \"1s\"\nkeep_alive = \"1s\"\n\
             client_write = \"1s\"\nheartbeat = \"1s\"",
        )
        .more(&format!(
            "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
             [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\n\
             base_url = \"http://{}/v1\"\n\
             timeouts = {{ connect = \"1s\", first_byte = \"1s\", first_token = \"1s\", idle = \"1s\", \
             plain = \"50s\", total = \"55s\" }}\n[[providers.offers]]\nmodel = \"d\"\n",
            provider.address
        ))
        .start()
        .await;
    let socket = TcpStream::connect(running.client.address).await.unwrap();
    let client = socket.local_addr().unwrap();
    let ask = json!({"model": "d", "prompt": "a cat", "response_format": "b64_json"}).to_string();
    let mut open = running.client.open_over(socket, "POST", PATH, &[], ask.as_bytes()).await;
    within("the call", provider.until_calls(1)).await;
    until_probed("the client's connection to be probed", running.client.address, Some(client)).await;
    // The gateway's end of its connection to the provider is the one whose other end is the provider's port.
    let probed = |(_, to, kind, left): (u16, u16, u8, u64)| {
        to == provider.address.port() && kind == 2 && left <= 2_000
    };
    until("the provider's connection to be probed", || timers().into_iter().any(probed)).await;
    for _ in 0..3 {
        idle_second(running.client.address).await;
    }
    assert_eq!((provider.calls(), provider.left()), (1, 0), "the wait goes on");
    go.notify_one();
    let answer = within("the answer", open.finish()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["data"][0]["b64_json"], "iVBORw0KGgo=");
}
