//! HTTP/2 client that can reset one stream of its connection.

use crate::client::Duplex;
use crate::{Answer, within};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use serde_json::Value;
use tokio::task::JoinHandle;

/// HTTP/2 connection of a client.
pub struct H2Client {
    send: SendRequest<Bytes>,
    key: String,
    driver: JoinHandle<()>,
}

/// Request whose response is being read.
pub struct H2Response {
    upward: SendStream<Bytes>,
    body: RecvStream,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub bytes: Vec<u8>,
}

impl H2Client {
    /// Starts HTTP/2 on a connection.
    pub async fn over(socket: impl Duplex + 'static, key: &str) -> Self {
        Self::try_over(socket, key).await.unwrap()
    }

    /// Same as [`H2Client::over`]; returns the error if it fails.
    pub async fn try_over(socket: impl Duplex + 'static, key: &str) -> Result<Self, h2::Error> {
        let (send, connection) = h2::client::handshake(socket).await?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { send, key: key.to_owned(), driver })
    }

    /// Sends JSON and waits for the head of the response.
    pub async fn open(&self, path: &str, body: &Value) -> H2Response {
        self.begin(path, "application/json", body.to_string().into_bytes()).await.unwrap()
    }

    /// Sends any body, as flow control allows, and reads the complete response.
    pub async fn send(&self, path: &str, kind: &str, body: Vec<u8>) -> Answer {
        self.begin(path, kind, body).await.unwrap().finish().await
    }

    /// Sends JSON and reads the complete response.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.open(path, body).await.finish().await
    }

    /// Sends any body and waits for the head of the response. The error shows whether the server may have processed the
    /// request, see [`is_unprocessed`].
    pub async fn begin(&self, path: &str, kind: &str, body: Vec<u8>) -> Result<H2Response, h2::Error> {
        let request = Request::post(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", kind)
            .body(())
            .unwrap();
        let mut send = within("capacity for a stream", self.send.clone().ready()).await?;
        let (answer, mut upward) = send.send_request(request, false)?;
        // The connection task sends the rest of the body when the flow control window opens. A server that has
        // already answered may never open it.
        upward.send_data(Bytes::from(body), true).ok();
        let (head, body) = within("a head", answer).await?.into_parts();
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let headers = head.headers.iter().map(header).collect();
        Ok(H2Response { upward, body, status: head.status.as_u16(), headers, bytes: Vec::new() })
    }
}

/// Returns true if a request was not processed, so that it may be sent to another server: the server went away (GOAWAY
/// with NO_ERROR) before it processed the request.
pub fn is_unprocessed(why: &h2::Error) -> bool {
    why.is_go_away() && why.is_remote() && why.reason() == Some(Reason::NO_ERROR)
}

impl Drop for H2Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl H2Response {
    /// Reads until the received bytes contain this text.
    pub async fn until(&mut self, marker: &str) {
        let reading = async {
            while !String::from_utf8_lossy(&self.bytes).contains(marker) {
                assert!(self.more().await, "the answer ended without {marker:?}");
            }
        };
        within(marker, reading).await;
    }

    /// Resets this stream; the connection stays open.
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
