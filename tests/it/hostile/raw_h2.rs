//! HTTP/2 client that writes and reads frame by frame, valid or not.

use crate::harness::certificates::connect;
use crate::harness::within;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const PRIORITISED: u8 = 32;

/// A frame's bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// One setting of a SETTINGS frame.
pub fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Header field as a literal that is never indexed.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0x10], string(name), string(value)].concat()
}

/// Field with incremental indexing.
pub fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    match text.len() {
        small @ 0..127 => bytes.push(small as u8),
        long => {
            bytes.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Pseudo-header fields of a request.
pub fn pseudo(method: &str, path: &str) -> Vec<u8> {
    [
        field(":method", method),
        field(":scheme", "https"),
        field(":path", path),
        field(":authority", "localhost"),
    ]
    .concat()
}

/// Returns the complete head of a valid GET request, which the gateway answers.
pub fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &pseudo("GET", "/v1/nothing"))
}

/// Frame received from the peer.
#[derive(Clone, Debug)]
pub struct ReceivedFrame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl ReceivedFrame {
    /// The error code of a GOAWAY or a RST_STREAM.
    pub fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// A connection of raw frames.
pub struct Raw {
    read: ReadHalf<TlsStream<TcpStream>>,
    write: WriteHalf<TlsStream<TcpStream>>,
}

impl Raw {
    /// Connects with TLS that negotiated HTTP/2, and sends nothing.
    pub async fn connect(address: SocketAddr, root: &Path) -> Self {
        let (read, write) = split(connect(address, root, &["h2"]).await);
        Self { read, write }
    }

    /// Connects and sends the preface with usual settings.
    pub async fn begun(address: SocketAddr, root: &Path) -> Self {
        let mut raw = Self::connect(address, root).await;
        raw.send(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()).await;
        raw
    }

    /// Returns both halves, to flood on one and read on the other.
    pub fn split(self) -> (ReadHalf<TlsStream<TcpStream>>, WriteHalf<TlsStream<TcpStream>>) {
        (self.read, self.write)
    }

    /// Writes bytes; returns true if the gateway accepted them.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        let write = async {
            self.write.write_all(bytes).await?;
            self.write.flush().await
        };
        within("bytes to be taken", write).await.is_ok()
    }

    /// The next frame; `None` at the end.
    pub async fn hear(&mut self) -> Option<ReceivedFrame> {
        within("a frame or the end", next(&mut self.read)).await
    }
}

/// The next frame of a connection.
pub async fn next(read: &mut ReadHalf<TlsStream<TcpStream>>) -> Option<ReceivedFrame> {
    let mut head = [0; 9];
    read.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    read.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes(head[5..9].try_into().unwrap()) & 0x7fff_ffff;
    Some(ReceivedFrame { kind: head[3], flags: head[4], stream, payload })
}
