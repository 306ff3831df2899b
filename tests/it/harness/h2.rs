//! A client that speaks HTTP/2 and can reset one stream of its connection.

use super::client::Duplex;
use super::{Answer, within};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use serde_json::Value;
use tokio::task::JoinHandle;

/// One connection.
pub struct H2 {
    send: SendRequest<Bytes>,
    key: String,
    driver: JoinHandle<()>,
}

/// An exchange whose answer is being read.
pub struct Exchange {
    upward: SendStream<Bytes>,
    body: RecvStream,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub bytes: Vec<u8>,
}

impl H2 {
    /// Begins HTTP/2 on a connection.
    pub async fn over(socket: impl Duplex + 'static, key: &str) -> Self {
        let (send, connection) = h2::client::handshake(socket).await.unwrap();
        let driver = tokio::spawn(async move { drop(connection.await) });
        Self { send, key: key.to_owned(), driver }
    }

    /// Sends JSON and waits for the head of the answer.
    pub async fn open(&self, path: &str, body: &Value) -> Exchange {
        let request = Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .body(())
            .unwrap();
        let mut send = within("room for a stream", self.send.clone().ready()).await.unwrap();
        let (answer, mut upward) = send.send_request(request, false).unwrap();
        // The window opens piece by piece; what waits for it is kept by the connection.
        upward.send_data(Bytes::from(body.to_string()), true).unwrap();
        let (head, body) = within("a head", answer).await.unwrap().into_parts();
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let headers = head.headers.iter().map(header).collect();
        Exchange { upward, body, status: head.status.as_u16(), headers, bytes: Vec::new() }
    }

    /// Sends any body, as its window opens, and reads the whole answer.
    pub async fn send(&self, path: &str, kind: &str, body: Vec<u8>) -> Answer {
        let request = Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", kind)
            .body(())
            .unwrap();
        let mut send = within("room for a stream", self.send.clone().ready()).await.unwrap();
        let (answer, mut upward) = send.send_request(request, false).unwrap();
        upward.send_data(Bytes::from(body), true).unwrap();
        let (head, body) = within("a head", answer).await.unwrap().into_parts();
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let headers = head.headers.iter().map(header).collect();
        let status = head.status.as_u16();
        let mut exchange = Exchange { upward, body, status, headers, bytes: Vec::new() };
        within("the end", async { while exchange.more().await {} }).await;
        let Exchange { status, headers, bytes, body, .. } = exchange;
        Answer { status, headers, body: bytes, whole: body.is_end_stream() }
    }

    /// Sends JSON and reads the whole answer.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        let mut exchange = self.open(path, body).await;
        within("the end", async { while exchange.more().await {} }).await;
        let Exchange { status, headers, bytes, body, .. } = exchange;
        Answer { status, headers, body: bytes, whole: body.is_end_stream() }
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Exchange {
    /// Reads until this text is among the bytes.
    pub async fn until(&mut self, marker: &str) {
        let reading = async {
            while !String::from_utf8_lossy(&self.bytes).contains(marker) {
                assert!(self.more().await, "the answer ended without {marker:?}");
            }
        };
        within(marker, reading).await;
    }

    /// Leaves this stream and keeps the connection.
    pub fn reset(mut self) {
        self.upward.send_reset(Reason::CANCEL);
    }

    async fn more(&mut self) -> bool {
        match self.body.data().await {
            Some(Ok(piece)) => {
                self.body.flow_control().release_capacity(piece.len()).unwrap();
                self.bytes.extend_from_slice(&piece);
                true
            }
            _ => false,
        }
    }
}
