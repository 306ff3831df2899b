//! HTTP/2 client that can reset one stream of its connection.

use crate::client::Duplex;
use crate::{Answer, within};
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
        Self::try_over(socket, key).await.unwrap()
    }

    /// The same; it may fail.
    pub async fn try_over(socket: impl Duplex + 'static, key: &str) -> Result<Self, h2::Error> {
        let (send, connection) = h2::client::handshake(socket).await?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { send, key: key.to_owned(), driver })
    }

    /// Sends JSON and waits for the head of the answer.
    pub async fn open(&self, path: &str, body: &Value) -> Exchange {
        self.begin(path, "application/json", body.to_string().into_bytes()).await.unwrap()
    }

    /// Sends any body, as its window opens, and reads the whole answer.
    pub async fn send(&self, path: &str, kind: &str, body: Vec<u8>) -> Answer {
        self.begin(path, kind, body).await.unwrap().finish().await
    }

    /// Sends JSON and reads the whole answer.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.open(path, body).await.finish().await
    }

    /// Sends any body and waits for the head of the answer; the error says whether the gateway has looked at it.
    pub async fn begin(&self, path: &str, kind: &str, body: Vec<u8>) -> Result<Exchange, h2::Error> {
        let request = Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", kind)
            .body(())
            .unwrap();
        let mut send = within("capacity for a stream", self.send.clone().ready()).await?;
        let (answer, mut upward) = send.send_request(request, false)?;
        // The window opens piece by piece; what waits for it is kept by the connection. Who has answered already may
        // want none of it.
        upward.send_data(Bytes::from(body), true).ok();
        let (head, body) = within("a head", answer).await?.into_parts();
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let headers = head.headers.iter().map(header).collect();
        Ok(Exchange { upward, body, status: head.status.as_u16(), headers, bytes: Vec::new() })
    }
}

/// Checks whether a request was not processed, so that it may be retried elsewhere: its connection was told that the
/// gateway takes no more, or said so of this stream.
pub fn is_unheard(why: &h2::Error) -> bool {
    why.is_go_away() && why.is_remote() && why.reason() == Some(Reason::NO_ERROR)
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

    /// Reads to the end.
    pub async fn finish(mut self) -> Answer {
        within("the end", async { while self.more().await {} }).await;
        let Self { status, headers, bytes, body, .. } = self;
        Answer { status, headers, body: bytes, whole: body.is_end_stream() }
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
