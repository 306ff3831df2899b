//! Hostile clients: a setting bounds the time and memory of each, and other clients are not affected.
//! `PENSTOCK_FULL=1` chooses the long forms.

mod addresses;
mod connection_limits;
mod dead_peers;
mod dependency_versions;
mod endless_h2_frames;
mod endless_responses;
mod h2_floods;
mod h2_frames;
mod h2_rejections;
mod pipelining;
pub mod raw_h2;
mod refused_bodies;
mod refused_heads;
mod rejected_slow_clients;
mod resource_bombs;
mod size_limits;
mod slow_clients;
mod smuggling;
mod stalled_readers;
mod stream_limits;
mod unauthenticated_memory;

use crate::harness::{Client, within};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

/// Returns true if the long form of the tests was requested.
pub fn full() -> bool {
    std::env::var_os("PENSTOCK_FULL").is_some_and(|value| value == "1")
}

/// Writes as many of the bytes as the gateway accepts, and reads until the gateway closes the connection.
async fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // The gateway may refuse early and close before all bytes are written.
    socket.write_all(bytes).await.ok();
    within("the connection to close", rest(&mut socket)).await
}

/// Reads until the gateway closes the connection; returns all bytes.
async fn rest(socket: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 * 1024];
    while let Ok(read @ 1..) = socket.read(&mut piece).await {
        bytes.extend_from_slice(&piece[..read]);
    }
    bytes
}

/// Returns the statuses of the HTTP/1.1 answers that follow each other in these bytes.
fn statuses(bytes: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(bytes);
    text.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

/// A chat request's JSON with this text.
fn ask(text: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#)
}

/// Sends honest requests one after the other, at least `least`, until `over` returns true. Asserts that all succeed,
/// and returns their durations.
async fn honest(client: &Client, least: usize, mut over: impl FnMut() -> bool) -> Vec<Duration> {
    let body: serde_json::Value = serde_json::from_str(&ask("Hi")).unwrap();
    let mut took = Vec::new();
    while took.len() < least || !over() {
        let began = Instant::now();
        let answer = client.post(CHAT, &body).await;
        assert_eq!(answer.status, 200, "an honest request failed: {}", answer.text());
        took.push(began.elapsed());
    }
    took.sort();
    took
}

fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Prints the durations; in the long form also asserts that requests during the attack are hardly slower than before.
/// A short run on a busy machine shows only that all requests were answered.
fn unharmed(what: &str, before: &[Duration], during: &[Duration]) {
    let (calm, under) = (percentile(before, 0.99), percentile(during, 0.99));
    eprintln!(
        "{what}: honest p99 {calm:.1?} before ({} requests), {under:.1?} during ({} requests)",
        before.len(),
        during.len()
    );
    if full() {
        assert!(under <= calm * 2 + Duration::from_millis(20), "{what}: {under:?} against {calm:?}");
    }
}
