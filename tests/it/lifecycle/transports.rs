//! Transports into a gateway: plain HTTP, TLS, and HTTP/2 over TLS.

use crate::harness::certificates::{TestCertificate, connector, dial, handshake_over};
use crate::harness::client::Duplex;
use crate::harness::h2_client::{H2Client, is_unprocessed};
use crate::harness::process::Home;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub const CHAT: &str = "/v1/chat/completions";

/// Transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transport {
    Plain,
    Tls,
    H2,
}

/// Transports in rotation.
pub const TRANSPORTS: [Transport; 3] = [Transport::H2, Transport::Tls, Transport::Plain];

/// Addresses of a gateway's listeners, and the root that its clients trust.
#[derive(Clone)]
pub struct GatewayListeners {
    http: SocketAddr,
    pub https: SocketAddr,
    pub files: Arc<TestCertificate>,
    tls: TlsConnector,
    h2: TlsConnector,
}

impl GatewayListeners {
    /// Returns the listeners of a home, and adds the TLS listener to the configuration that is written next.
    pub fn of(home: &mut Home) -> Self {
        let files = TestCertificate::make();
        let tls = connector(&files.root, &["http/1.1"]);
        let h2 = connector(&files.root, &["h2", "http/1.1"]);
        Self { http: home.http, https: home.secure(&files), files: Arc::new(files), tls, h2 }
    }

    /// Opens a connection with HTTP/1.1.
    pub async fn one(&self, transport: Transport) -> std::io::Result<Box<dyn Duplex>> {
        Ok(match transport {
            Transport::Plain => Box::new(TcpStream::connect(self.http).await?),
            Transport::Tls | Transport::H2 => Box::new(dial(self.https, &self.tls).await?),
        })
    }

    /// Opens a connection over a socket of the TLS listener.
    pub async fn over(&self, socket: TcpStream) -> std::io::Result<Box<dyn Duplex>> {
        Ok(Box::new(handshake_over(socket, &self.tls).await?))
    }

    /// Opens a connection with HTTP/2.
    pub async fn h2(&self, key: &str) -> std::io::Result<H2Client> {
        let socket = dial(self.https, &self.h2).await?;
        H2Client::try_over(socket, key).await.map_err(std::io::Error::other)
    }
}

/// Request that is repeated.
pub struct Request {
    key: String,
    body: String,
    /// Complete request in HTTP/1.1.
    text: String,
}

impl Request {
    pub fn new(key: &str, body: &Value) -> Self {
        let body = body.to_string();
        let text = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { key: key.to_owned(), body, text }
    }
}

/// A connection that may serve a request.
pub enum Connection {
    One(Box<dyn Duplex>),
    H2(H2Client),
}

/// Reason why a request has no response.
#[derive(Debug)]
pub enum RequestFailure {
    /// Request that the gateway did not process, because it had sent GOAWAY.
    Unheard,
    Failed(String),
}

impl Connection {
    pub async fn open(
        listeners: &GatewayListeners,
        transport: Transport,
        request: &Request,
    ) -> Result<Self, RequestFailure> {
        let opened = match transport {
            Transport::Plain | Transport::Tls => listeners.one(transport).await.map(Self::One),
            Transport::H2 => listeners.h2(&request.key).await.map(Self::H2),
        };
        opened.map_err(|why| RequestFailure::Failed(format!("not connected: {why}")))
    }

    /// Sends one request; returns the connection if it may serve another.
    pub async fn ask(self, request: &Request) -> Result<(u16, Option<Self>), RequestFailure> {
        match self {
            Self::One(socket) => {
                let (status, socket) =
                    exchange(socket, &request.text).await.map_err(RequestFailure::Failed)?;
                Ok((status, socket.map(Self::One)))
            }
            Self::H2(h2) => {
                let begun = h2.begin(CHAT, "application/json", request.body.clone().into_bytes()).await;
                let answer = begun.map_err(|why| match is_unprocessed(&why) {
                    true => RequestFailure::Unheard,
                    false => RequestFailure::Failed(format!("cut: {why}")),
                });
                let answer = answer?.finish().await;
                if !answer.whole {
                    return Err(RequestFailure::Failed(format!("cut after {} bytes", answer.body.len())));
                }
                Ok((answer.status, Some(Self::H2(h2))))
            }
        }
    }
}

/// Sends one request over HTTP/1.1; returns the connection if it may serve another.
async fn exchange(
    mut socket: Box<dyn Duplex>,
    request: &str,
) -> Result<(u16, Option<Box<dyn Duplex>>), String> {
    let not_sent = |why| format!("not sent: {why}");
    socket.write_all(request.as_bytes()).await.map_err(not_sent)?;
    socket.flush().await.map_err(not_sent)?;
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|digits| digits.parse().ok()).ok_or("no length")?;
            if bytes.len() >= head.len() + 4 + length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                let last = head.contains("connection: close");
                return Ok((status, (!last).then_some(socket)));
            }
        }
        let mut piece = [0; 16 * 1024];
        match socket.read(&mut piece).await {
            Ok(0) => return Err(format!("cut after {} bytes", bytes.len())),
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(why) => return Err(format!("cut: {why}")),
        }
    }
}
