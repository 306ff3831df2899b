//! Tests of simulated providers with requests over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod answers;
mod connections;
mod errors;
mod faults;
mod h2;
mod models;
mod orders;
mod streams;
mod vectors;

use super::{FaultRule, SimulatedFault, SimulatedServer, SimulatorControl, SimulatorOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Response that was read from a separate connection.
#[derive(Debug)]
struct Seen {
    /// 0: nothing came.
    status: u16,
    head: String,
    body: Vec<u8>,
    /// True if the body is complete according to its framing (`Content-Length`, last chunk).
    whole: bool,
}

impl Seen {
    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the events as JSON, without `[DONE]`.
    fn events(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the text of a stream in the chat or the messages dialect.
    fn answer_text(&self) -> String {
        let text = |event: &Value| {
            let paths = ["/choices/0/delta/content", "/delta/text"];
            paths.iter().find_map(|path| event.pointer(path)?.as_str().map(str::to_owned))
        };
        self.events().iter().filter_map(text).collect()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

async fn server() -> SimulatedServer {
    SimulatedServer::start(SimulatorOptions { name: "Test".to_owned(), ..SimulatorOptions::default() })
        .await
        .unwrap()
}

async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

async fn receive(mut stream: TcpStream) -> Seen {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.ok();
    let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else {
        assert!(all.is_empty(), "half a head");
        return Seen { status: 0, head: String::new(), body: Vec::new(), whole: false };
    };
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let rest = &all[end + 4..];
    let (body, whole) = match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => (rest.to_vec(), rest.len() == length.parse::<usize>().unwrap()),
        None => dechunk(rest),
    };
    Seen { status, head, body, whole }
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if length == 0 {
            return (body, &rest[at..] == b"\r\n\r\n");
        }
        body.extend_from_slice(&rest[at + 2..at + 2 + length]);
        rest = &rest[at + 4 + length..];
    }
    (body, false)
}

async fn post(address: SocketAddr, path: &str, body: &Value) -> Seen {
    receive(send(address, "POST", path, &body.to_string()).await).await
}

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Returns a small chat request with the members of `more` added.
fn ask(more: &Value) -> Value {
    let mut ask =
        json!({ "model": "m", "max_tokens": 4096, "messages": [{ "role": "user", "content": "Hello" }] });
    for (name, value) in more.as_object().unwrap() {
        ask[name] = value.clone();
    }
    ask
}

fn streamed(more: &Value) -> Value {
    let mut ask = ask(more);
    ask["stream"] = json!(true);
    ask
}

/// Sends a chat request to a new provider with this fault.
async fn with(fault: SimulatedFault, body: &Value) -> Seen {
    let server = server().await;
    server.control().add_rule(fault);
    post(server.address, CHAT, body).await
}

fn once(control: &SimulatorControl, fault: SimulatedFault) {
    control.add_rule(FaultRule::from(fault).times(1));
}
