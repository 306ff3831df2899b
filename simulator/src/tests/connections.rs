//! HTTP/1.1 as clients use it.

use super::{CHAT, SimulatedFault, ask, send, server};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other_pipelined_or_not() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let one = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(one.repeat(2).as_bytes()).await.unwrap();
    server.control().until(|counts| counts.finished == 2).await;
    let last = "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(last.as_bytes()).await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert_eq!(all.matches("HTTP/1.1 200 OK\r\n").count(), 3);
    assert_eq!(server.control().counts().connections, 1);
}

#[tokio::test]
async fn a_body_may_come_in_chunks_and_wait_for_permission() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut permission = [0; 25];
    stream.read_exact(&mut permission).await.unwrap();
    assert_eq!(&permission, b"HTTP/1.1 100 Continue\r\n\r\n");
    let body = ask(&json!({})).to_string();
    for part in body.as_bytes().chunks(9) {
        stream.write_all(format!("{:X};x=y\r\n", part.len()).as_bytes()).await.unwrap();
        stream.write_all(part).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\ntrailer: x\r\n\r\n").await.unwrap();
    assert_eq!(super::receive(stream).await.status, 200);
    assert_eq!(server.control().last_call().unwrap().body, body);
}

#[tokio::test]
async fn a_stopped_server_frees_its_port_and_ends_what_was_open() {
    let server = server().await;
    let (address, control) = (server.address, server.control());
    control.add_rule(SimulatedFault::Silent {});
    let stream = send(address, "POST", CHAT, &ask(&json!({})).to_string()).await;
    control.until(|counts| counts.held == 1).await;
    server.stop().await;
    assert_eq!(super::receive(stream).await.status, 0);
    control.until(|counts| counts.open == 0).await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn bytes_that_are_no_request_end_the_connection() {
    let server = server().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.ok();
        assert!(all.is_empty());
    }
    assert_eq!(server.control().counts().calls, 0);
}
