//! Persistent HTTP/1.1 connections when the gateway stops.

use crate::harness::script::{ScriptStep, done, finish, role, sse, stream, text};
use crate::harness::{Bench, Client, Provider, until, within};
use serde_json::Value;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// End of a chunked body.
const END: &str = "\r\n0\r\n\r\n";

/// Keep-alive connection of a client.
struct PersistentConnection {
    socket: TcpStream,
    key: String,
    /// Bytes read since the last request.
    received: String,
}

impl PersistentConnection {
    async fn to(client: &Client) -> Self {
        let socket = TcpStream::connect(client.address).await.unwrap();
        Self { socket, key: client.key.clone(), received: String::new() }
    }

    async fn ask(&mut self, body: &Value) {
        let (key, body) = (&self.key, body.to_string());
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.received.clear();
        self.socket.write_all(request.as_bytes()).await.unwrap();
    }

    async fn until(&mut self, marker: &str) {
        let mut piece = [0; 4096];
        while !self.received.contains(marker) {
            let read = within(marker, self.socket.read(&mut piece)).await.unwrap();
            assert!(read > 0, "closed without {marker:?}: {}", self.received);
            self.received.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
    }

    /// Returns true if the last response has `connection: close`.
    fn is_last(&self) -> bool {
        let (head, _) = self.received.split_once("\r\n\r\n").unwrap();
        head.to_ascii_lowercase().contains("connection: close")
    }

    /// Asserts that the gateway closes the connection, and sends nothing before.
    async fn closed(&mut self) {
        assert_eq!(within("its end", self.socket.read(&mut [0; 16])).await.unwrap(), 0);
    }
}

/// Script of a stream that waits after its first text, until the test continues it.
fn held(go: &Arc<Notify>) -> Vec<ScriptStep> {
    vec![sse(), role(), text("One"), ScriptStep::Wait(go.clone()), finish("stop"), done(), ScriptStep::End]
}

/// Tests that the grace period of a connection starts with its last exchange, not with the signal. The connections
/// become idle one after the other, so the last answer ends later than one grace period after the signal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keep_alive_connection_may_make_a_last_request_after_a_stop() {
    let (provider, earlier, later) = (Provider::start().await, Arc::default(), Arc::default());
    let scripts = [stream(&["One"]), held(&earlier), held(&later), stream(&["Last"])];
    for script in scripts {
        provider.then(script);
    }
    let running = Bench::new().provider("a", &provider).start().await;
    let (client, admin, ask) = (running.client.clone(), running.admin(), running.ask_stream());
    let (mut idle, mut second, mut third) = (
        PersistentConnection::to(&client).await,
        PersistentConnection::to(&client).await,
        PersistentConnection::to(&client).await,
    );
    for (connection, marker) in [(&mut idle, END), (&mut second, "One"), (&mut third, "One")] {
        connection.ask(&ask).await;
        connection.until(marker).await;
        assert!(!connection.is_last(), "{}", connection.received);
    }
    let app = running.gateway.app.clone();
    let stopping = tokio::spawn(running.stop());
    until("the drain", || app.is_draining()).await;
    idle.closed().await;
    earlier.notify_one();
    second.until(END).await;
    second.closed().await;

    later.notify_one();
    third.until(END).await;
    // The client pauses for a short time; the gateway must not close the connection during the pause.
    for _ in 0..20 {
        assert_eq!(admin.get("/readyz").await.status, 503);
    }
    assert!(!stopping.is_finished());
    third.ask(&ask).await;
    third.until(END).await;
    assert!(
        third.received.starts_with("HTTP/1.1 200") && third.received.contains("Last"),
        "{}",
        third.received
    );
    assert!(third.is_last(), "{}", third.received);
    third.closed().await;
    within("the stop", stopping).await.unwrap();
}
