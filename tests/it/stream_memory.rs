//! Memory of open streams, and its return to the system soon after they close. `./x load --streams 9500` is the long
//! form, with an event a second for each stream.

use crate::harness::process::{Home, catalogue};
use crate::harness::script::{ScriptStep, plain, role, sse, text};
use crate::harness::{Client, Provider, until, within};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const STREAMS: u64 = 300;

/// Maximum memory of a stream, in KiB: a third more than the measured 51, of which Pingora's session and its future
/// need 25.
const EACH: u64 = 68;
/// Maximum share of the streams' memory that the process may still have after the streams have closed. After the
/// first streams of a process, one third remains.
const STAYS: f64 = 0.6;

/// Stream whose first token was sent.
async fn open(client: &Client) -> TcpStream {
    let mut socket = TcpStream::connect(client.address).await.unwrap();
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        client.key,
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    let mut heard = Vec::new();
    within("the first word of a stream", async {
        while memchr::memmem::find(&heard, b"One ").is_none() {
            assert!(
                socket.read_buf(&mut heard).await.unwrap() > 0,
                "closed: {}",
                String::from_utf8_lossy(&heard)
            );
        }
    })
    .await;
    socket
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_stream_is_small_and_its_memory_is_given_back() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    provider.streams(vec![sse(), role(), text("One "), ScriptStep::Hang]);
    let home = Home::new();
    home.write(&format!("[log]\nlevel = \"error\"\n{}", catalogue(&provider, "")));
    let process = home.run().await;
    let (client, _) = home.key();
    // Code that runs for the first time is loaded from its file, which counts as memory.
    drop(open(&client).await);
    provider.until_left(1).await;
    let before = process.memory("VmRSS");
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(open(&client).await);
    }
    let took = process.memory("VmRSS").saturating_sub(before);
    eprintln!("{STREAMS} streams: {} KiB each beside {before} KiB", took / STREAMS);
    assert!(took / STREAMS < EACH, "{} KiB each", took / STREAMS);
    drop(streams);
    provider.until_left(1 + STREAMS as usize).await;
    let stays = (took as f64 * STAYS) as u64;
    until("memory to be given back", || process.memory("VmRSS") < before + stays).await;
    eprintln!("{} KiB when they have closed", process.memory("VmRSS"));
}
