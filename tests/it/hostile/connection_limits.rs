//! Limits on connections, in total and for each client.

use crate::harness::{Bench, Client, Provider, until, within};
use crate::hostile::{CHAT, ask};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Connects from an address of the loopback network.
async fn from(source: &str, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

/// Checks whether a connection is served.
async fn served(socket: &mut TcpStream, key: &str) -> bool {
    let body = ask("Hi");
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut first = [0; 12];
    let exchange = async {
        socket.write_all(head.as_bytes()).await?;
        socket.read_exact(&mut first).await
    };
    within("an answer or a close", exchange).await.is_ok() && &first == b"HTTP/1.1 200"
}

fn refused(metrics: &str, reason: &str) -> bool {
    metrics.contains(&format!("penstock_connections_refused_total{{reason=\"{reason}\"}}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_has_so_many_and_others_do_not_notice() {
    let provider = Provider::start().await;
    let bench = Bench::new().settings("[limits]\nconnections_per_client = 3");
    let running = bench.provider("a", &provider).start().await;
    let Client { address, key } = running.client.clone();
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut socket = from("127.0.0.2", address).await;
        assert!(served(&mut socket, &key).await);
        held.push(socket);
    }
    assert!(!served(&mut from("127.0.0.2", address).await, &key).await, "the fourth is closed");
    assert!(served(&mut from("127.0.0.3", address).await, &key).await, "another client is served");
    assert_eq!(running.chat().await.status, 200);
    assert!(refused(&running.admin().get("/metrics").await.text(), "client"));
    held.pop();
    within("the permit to be free again", async {
        while !served(&mut from("127.0.0.2", address).await, &key).await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_total_connection_limit_excludes_the_admin_listener() {
    let provider = Provider::start().await;
    let bench = Bench::new().settings("[limits]\nconnections = 4");
    let running = bench.provider("a", &provider).start().await;
    let Client { address, key } = running.client.clone();
    let mut held = Vec::new();
    for number in 0..4 {
        let mut socket = from(&format!("127.0.0.{}", number + 2), address).await;
        assert!(served(&mut socket, &key).await);
        held.push(socket);
    }
    assert!(!served(&mut from("127.0.0.9", address).await, &key).await, "the fifth is closed");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(refused(&metrics, "process") && metrics.contains("penstock_connections_open 4"));
    drop(held);
    // All permits are free again.
    let open = running.gateway.app.metrics.open_connections_gauge();
    until("the permits to be free", || open.get() == 0).await;
    assert_eq!(running.chat().await.status, 200);
}
