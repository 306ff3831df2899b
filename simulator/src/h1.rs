//! HTTP/1.1 server. It reads each request completely, and can write a response byte by byte if a fault requires it.

use super::control::PlaybackOutcome;
use super::http_request::{HttpRequest, MAX_BODY_BYTES};
use super::provider::SimulatedProvider;
use super::response_writer::ResponseWriter;
use super::script::ScriptHead;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep;

/// Maximum bytes of a head.
const MAX_REQUEST_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 128;
/// Maximum bytes of pipelined requests.
const MAX_PIPELINED_BYTES: usize = 1 << 20;

/// Serves a connection until either side closes it.
pub(super) async fn serve<S>(stream: S, provider: &SimulatedProvider)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut line = Http1Connection {
        stream,
        read_buffer: BytesMut::new(),
        out: Vec::new(),
        body: Vec::new(),
        chunked: false,
    };
    while let Ok(Some((request, keep))) = line.read().await {
        let outcome = provider.serve(request, &mut line).await;
        if outcome != PlaybackOutcome::Finished || !keep {
            break;
        }
    }
    line.stream.shutdown().await.ok();
}

/// Connection from a client.
struct Http1Connection<S> {
    stream: S,
    /// Bytes that were read but not parsed yet.
    read_buffer: BytesMut,
    /// Bytes to write before `body`.
    out: Vec<u8>,
    /// Bytes of the body to write.
    body: Vec<u8>,
    chunked: bool,
}

fn invalid_data(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Parsed request head.
struct ParsedHead {
    request: HttpRequest,
    /// True if the connection stays open for another request.
    keep: bool,
    /// Value of `content-length`; 0 without this header.
    length: usize,
    chunked: bool,
    /// True if the client expects `100 Continue` before it sends the body.
    expects: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Http1Connection<S> {
    /// Reads the next request; the flag is true if the connection stays open for another request. Returns `None` if
    /// the client has closed the connection.
    async fn read(&mut self) -> io::Result<Option<(HttpRequest, bool)>> {
        let mut begun = loop {
            if let Some((length, begun)) = parse(&self.read_buffer)? {
                drop(self.read_buffer.split_to(length));
                break begun;
            }
            if self.read_buffer.len() > MAX_REQUEST_HEAD_BYTES {
                return Err(invalid_data("head too long"));
            }
            if self.stream.read_buf(&mut self.read_buffer).await? == 0 {
                return Ok(None);
            }
        };
        if begun.expects {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        begun.request.body =
            if begun.chunked { self.read_chunked().await? } else { self.read_exactly(begun.length).await? };
        Ok(Some((begun.request, begun.keep)))
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read_buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn read_exactly(&mut self, length: usize) -> io::Result<Bytes> {
        if length > MAX_BODY_BYTES {
            return Err(invalid_data("body too long"));
        }
        self.read_buffer.reserve(length.saturating_sub(self.read_buffer.len()));
        while self.read_buffer.len() < length {
            self.read_more().await?;
        }
        Ok(self.read_buffer.split_to(length).freeze())
    }

    async fn read_chunked(&mut self) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let line = self.text_line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(digits, 16).map_err(|_| invalid_data("chunk length"))?;
            if length == 0 {
                while !self.text_line().await?.is_empty() {}
                return Ok(body.freeze());
            }
            if body.len().saturating_add(length) > MAX_BODY_BYTES {
                return Err(invalid_data("body too long"));
            }
            body.extend_from_slice(&self.read_exactly(length).await?);
            self.read_exactly(2).await?;
        }
    }

    /// Reads a line of a chunked body, without its line ending.
    async fn text_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.read_buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.read_buffer.split_to(at + 2);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read_buffer.len() > MAX_REQUEST_HEAD_BYTES {
                return Err(invalid_data("line too long"));
            }
            self.read_more().await?;
        }
    }

    fn frame(&mut self) {
        if self.body.is_empty() {
            return;
        }
        if self.chunked {
            self.out.extend_from_slice(format!("{:x}\r\n", self.body.len()).as_bytes());
        }
        self.out.append(&mut self.body);
        if self.chunked {
            self.out.extend_from_slice(b"\r\n");
        }
    }
}

/// Parses a head if it is complete; returns its length and its content.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, ParsedHead)>> {
    let mut found = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut found);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(invalid_data("head")),
    };
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid_data("header name"))?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| invalid_data("header value"))?;
        headers.append(name, value);
    }
    let header_value =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
    let begun = ParsedHead {
        keep: header_value("connection").is_none_or(|value| !value.contains("close"))
            && head.version == Some(1),
        length: match header_value("content-length") {
            Some(text) => text.parse().map_err(|_| invalid_data("content-length"))?,
            None => 0,
        },
        chunked: header_value("transfer-encoding").is_some_and(|value| value.contains("chunked")),
        expects: header_value("expect").is_some_and(|value| value.contains("100-continue")),
        request: HttpRequest {
            method: head.method.unwrap_or_default().to_owned(),
            path: head.path.unwrap_or_default().to_owned(),
            h2: false,
            headers,
            body: Bytes::new(),
        },
    };
    Ok(Some((length, begun)))
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ResponseWriter for Http1Connection<S> {
    fn queue_head(&mut self, head: &ScriptHead) {
        let status = StatusCode::from_u16(head.status).ok();
        let reason = status.and_then(|status| status.canonical_reason()).unwrap_or("Simulated");
        self.out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", head.status).as_bytes());
        for (name, value) in &head.headers {
            self.out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        self.chunked = head.length.is_none();
        let frame = match head.length {
            Some(length) => format!("content-length: {length}\r\n\r\n"),
            None => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        };
        self.out.extend_from_slice(frame.as_bytes());
    }

    fn queue_bytes(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }

    fn queued(&self) -> usize {
        self.out.len() + self.body.len()
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.frame();
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await?;
            self.stream.flush().await?;
            self.out.clear();
        }
        Ok(())
    }

    async fn flush_slowly(&mut self, pause: Duration) -> io::Result<()> {
        for byte in std::mem::take(&mut self.out) {
            self.stream.write_all(&[byte]).await?;
            self.stream.flush().await?;
            sleep(pause).await;
        }
        Ok(())
    }

    async fn end(&mut self) -> io::Result<()> {
        self.frame();
        if self.chunked {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
        self.flush().await
    }

    async fn abort(&mut self) {
        // `abort` has no further work: the connection loop closes the connection.
    }

    async fn wait_for_disconnect(&mut self) {
        while self.read_buffer.len() < MAX_PIPELINED_BYTES {
            match self.stream.read_buf(&mut self.read_buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        std::future::pending::<()>().await;
    }
}
