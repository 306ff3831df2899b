//! An exchange over HTTP/1.1 with a provider: the request in as few writes as it
//! takes, the answer as the bytes it comes in. Its buffer is as large as what
//! comes: a stream that is silent holds a KiB, a long body is read in large
//! pieces. Reading may be given up at any point and taken up again.

use crate::net::read_budget;
use bytes::{Bytes, BytesMut};
use penstock_http_wire::answer::{
    BodyFraming, ChunkDecoder, ChunkStep, Http1ResponseHead, MalformedResponse, ResponseHeadScan,
};
use pingora_core::protocols::Stream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes that most heads fit in.
const SMALL: usize = 4 * 1024;
/// Bytes that most events fit in.
const EVENT: usize = 1024;
/// Most bytes read at once of a body whose length is known …
const LARGE: usize = 64 * 1024;
/// … and of a stream: what is read at once is worked on at once, while others wait.
const STREAM: usize = 16 * 1024;
/// Room below which another buffer is taken.
const CRAMPED: usize = 512;

/// Error that ends an answer early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The answer is not HTTP/1.1.
    Malformed,
    /// The connection ended, failed, or was silent for too long.
    Gone,
    /// The same, and its provider has done nothing for the request.
    Unasked,
}

impl From<MalformedResponse> for Broken {
    fn from(_: MalformedResponse) -> Self {
        Self::Malformed
    }
}

/// A connection and the answer on it.
pub struct Http1 {
    stream: Stream,
    /// Received bytes that were not read yet.
    buffer: BytesMut,
    /// Bytes asked for by the next read.
    room: usize,
    head: Option<(Http1ResponseHead, Bytes)>,
    body: Body,
    /// Longest wait for the next bytes.
    patience: Option<Duration>,
}

enum Body {
    Left(u64),
    Chunked(ChunkDecoder),
    Close,
    Over,
}

impl Http1 {
    /// On a connection on which nothing is under way.
    pub fn new(stream: Stream) -> Self {
        let buffer = BytesMut::new();
        Self { stream, buffer, room: SMALL, head: None, body: Body::Over, patience: None }
    }

    /// Returns the stream for writes.
    pub const fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Sets the longest wait for the next bytes; without a call there is no bound.
    pub const fn wait(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Writes a short request.
    ///
    /// # Errors
    /// The provider does not take it.
    pub async fn ask(&mut self, head: &[u8], body: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(head).await?;
        self.stream.write_all(body).await?;
        self.stream.flush().await
    }

    /// Reads the next head, which may be one that only informs.
    ///
    /// # Errors
    /// There is none.
    pub async fn read_head(&mut self) -> Result<u16, Broken> {
        let mut scan = ResponseHeadScan::default();
        loop {
            let read = if scan.is_due(&self.buffer) { Http1ResponseHead::read(&self.buffer)? } else { None };
            let Some(head) = read else {
                match self.fill().await? {
                    0 => return Err(Broken::Gone),
                    _ => continue,
                }
            };
            self.body = match head.framing {
                BodyFraming::Length(0) => Body::Over,
                BodyFraming::Length(length) => {
                    self.room = usize::try_from(length).map_or(LARGE, |length| length.clamp(CRAMPED, LARGE));
                    Body::Left(length)
                }
                BodyFraming::Chunked => Body::Chunked(ChunkDecoder::default()),
                BodyFraming::Close => Body::Close,
            };
            let bytes = self.buffer.split_to(head.size);
            let bytes = match head.framing {
                BodyFraming::Length(_) => bytes.freeze(),
                BodyFraming::Chunked | BodyFraming::Close => {
                    self.settle();
                    Bytes::copy_from_slice(&bytes)
                }
            };
            self.head = Some((head, bytes));
            return Ok(head.status);
        }
    }

    /// The status of the last head.
    pub fn status(&self) -> Option<u16> {
        self.head.as_ref().map(|(head, _)| head.status)
    }

    /// A field of the last head.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.head.as_ref().and_then(|(_, bytes)| penstock_http_wire::answer::header_value(bytes, name))
    }

    /// The next bytes of the body, `None` at its end.
    ///
    /// # Errors
    /// It was cut, or breaks a rule.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            match &mut self.body {
                Body::Over => return Ok(None),
                Body::Chunked(chunks) => match chunks.take(&mut self.buffer)? {
                    ChunkStep::Data(data) => return Ok(Some(data)),
                    ChunkStep::End => self.body = Body::Over,
                    ChunkStep::Incomplete => self.more().await?,
                },
                _ if self.buffer.is_empty() => match self.fill().await? {
                    0 if matches!(self.body, Body::Close) => self.body = Body::Over,
                    0 => return Err(Broken::Gone),
                    _ => {}
                },
                Body::Close => return Ok(Some(self.buffer.split().freeze())),
                Body::Left(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.buffer.len());
                    *left -= here as u64;
                    if *left == 0 {
                        self.body = Body::Over;
                    }
                    return Ok(Some(self.buffer.split_to(here).freeze()));
                }
            }
        }
    }

    /// Returns true if no byte of an answer has arrived.
    pub fn is_untouched(&self) -> bool {
        self.head.is_none() && self.buffer.is_empty()
    }

    /// Returns true if the answer was read completely.
    pub const fn is_over(&self) -> bool {
        matches!(self.body, Body::Over)
    }

    /// The connection, if it can serve another request: the answer is read, nothing came after it, and its provider
    /// said nothing against it.
    pub fn into_stream(self) -> Option<Stream> {
        let good = matches!(self.body, Body::Over)
            && self.buffer.is_empty()
            && self.head.is_some_and(|(head, _)| !head.last && head.status >= 200);
        good.then_some(self.stream)
    }

    /// A stream is long: its head does not keep the whole buffer for as long, and it begins with one for an event or
    /// two.
    fn settle(&mut self) {
        self.room = EVENT;
        if self.buffer.len() <= EVENT {
            let mut fit = BytesMut::with_capacity(EVENT);
            fit.extend_from_slice(&self.buffer);
            self.buffer = fit;
        }
    }

    async fn more(&mut self) -> Result<(), Broken> {
        match self.fill().await? {
            0 => Err(Broken::Gone),
            _ => Ok(()),
        }
    }

    /// Reads once. A buffer that a read has filled is too small.
    async fn fill(&mut self) -> Result<usize, Broken> {
        if self.buffer.capacity() - self.buffer.len() < CRAMPED {
            self.buffer.reserve(self.room);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let read = self.stream.read_buf(&mut self.buffer);
        let read = match self.patience {
            None => read.await,
            Some(patience) => timeout(patience, read).await.map_err(|_| Broken::Gone)?,
        };
        let read = read.map_err(|_| Broken::Gone)?;
        read_budget::charge_bytes(read);
        if read == room {
            let most = if matches!(self.body, Body::Left(_)) { LARGE } else { STREAM };
            self.room = (room * 2).clamp(EVENT, most);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
