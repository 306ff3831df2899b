//! HTTP client over a raw socket that sees each byte and can disconnect at any moment.

use crate::within;
use serde_json::Value;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Client: address to connect to, and API key.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub key: String,
}

/// Complete response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// True if the body is complete, by its length or by its last chunk.
    pub whole: bool,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns the JSON events of a chat stream, without `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        self.text()
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Returns the text of the first choice of a chat stream.
    pub fn streamed_text(&self) -> String {
        let texts = self.events();
        texts.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
    }
}

impl Client {
    /// Sends JSON and reads the complete response.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body.to_string().as_bytes()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    /// Sends any request, with additional headers, and reads the complete response.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        // The future is boxed, so that a test with many requests does not overflow its stack.
        let mut open = Box::pin(self.open(method, path, headers, body)).await;
        Box::pin(within("an answer", open.finish())).await
    }

    /// Sends a request and reads nothing yet.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> OpenResponse {
        let socket = TcpStream::connect(self.address).await.unwrap();
        self.open_over(socket, method, path, headers, body).await
    }

    /// Same as [`Client::open`], over an existing connection.
    pub async fn open_over(
        &self,
        mut socket: impl Duplex + 'static,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> OpenResponse {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !given("host") {
            head.push_str(&format!("host: {}\r\n", self.address));
        }
        if !self.key.is_empty() && !given("authorization") && !given("x-api-key") {
            head.push_str(&format!("authorization: Bearer {}\r\n", self.key));
        }
        if !body.is_empty() && !given("content-type") {
            head.push_str("content-type: application/json\r\n");
        }
        if !given("transfer-encoding") && !given("content-length") && method != "GET" {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        // The server may close the connection before it has read the complete body.
        socket.write_all(body).await.ok();
        // TLS may buffer bytes; TCP does not.
        socket.flush().await.ok();
        OpenResponse { socket: Box::new(socket), bytes: Vec::new() }
    }

    /// Sends a request over a connection that the server may refuse; returns the status of the response, if there is
    /// one.
    pub async fn try_post_over(&self, socket: impl Duplex + 'static, path: &str, body: &[u8]) -> Option<u16> {
        let mut socket = socket;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.key,
            body.len()
        );
        socket.write_all(&[head.as_bytes(), body].concat()).await.ok()?;
        socket.flush().await.ok()?;
        let mut answer = Vec::new();
        within("an answer or none", socket.read_to_end(&mut answer)).await.ok()?;
        String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
    }

    /// Opens a stream and waits until `marker` has arrived.
    pub async fn stream_until(&self, path: &str, body: &Value, marker: &str) -> OpenResponse {
        let mut open = self.open("POST", path, &[], body.to_string().as_bytes()).await;
        within(marker, open.until(marker)).await;
        open
    }
}

/// Bidirectional connection of any kind.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// Request whose response is being read. Dropping it closes the connection.
pub struct OpenResponse {
    socket: Box<dyn Duplex>,
    pub bytes: Vec<u8>,
}

impl OpenResponse {
    /// Reads until the received bytes contain this text.
    pub async fn until(&mut self, marker: &str) {
        let marker = marker.as_bytes();
        while !self.bytes.windows(marker.len()).any(|window| window == marker) {
            let seen = String::from_utf8_lossy(&self.bytes).into_owned();
            assert!(self.more().await, "the answer ended without {marker:?}: {seen}");
        }
    }

    /// Sends more bytes of the request.
    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    /// Reads until the received bytes contain this text; returns false if the response ends without it.
    pub async fn any(&mut self, marker: &str) -> bool {
        let marker = marker.as_bytes();
        while !self.bytes.windows(marker.len()).any(|window| window == marker) {
            if !self.more().await {
                return false;
            }
        }
        true
    }

    /// Reads more bytes; returns false at the end of the response.
    pub async fn more(&mut self) -> bool {
        let mut piece = [0; 64 * 1024];
        match self.socket.read(&mut piece).await {
            Ok(n) if n > 0 => {
                self.bytes.extend_from_slice(&piece[..n]);
                true
            }
            _ => false,
        }
    }

    /// Reads to the end; returns the response without its framing.
    pub async fn finish(&mut self) -> Answer {
        while self.more().await {}
        let mut bytes = self.bytes.as_slice();
        loop {
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or_else(|| {
                panic!("no head: {}", String::from_utf8_lossy(bytes));
            });
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
            bytes = &bytes[end + 4..];
            if status == 100 {
                continue;
            }
            let headers: Vec<(String, String)> = head
                .split("\r\n")
                .skip(1)
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let find = |name: &str| headers.iter().find(|(known, _)| known == name);
            let (body, whole) = match (find("transfer-encoding"), find("content-length")) {
                (Some(_), _) => unchunk(bytes),
                (None, Some((_, length))) => (bytes.to_vec(), length.parse() == Ok(bytes.len())),
                (None, None) => (bytes.to_vec(), true),
            };
            return Answer { status, headers, body, whole };
        }
    }
}

fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") else { return (body, false) };
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(data) = bytes.get(end + 2..end + 2 + size) else { return (body, false) };
        body.extend_from_slice(data);
        bytes = bytes.get(end + 4 + size..).unwrap_or_default();
    }
}
