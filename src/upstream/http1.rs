//! HTTP/1.1 exchange with a provider: writes the request in as few writes as possible and reads the answer in chunks.
//! The read buffer adapts to the body: a silent stream holds 1 KiB, a long body is read in large chunks. Reads are
//! cancel-safe.

use crate::net::read_budget;
use bytes::{Bytes, BytesMut};
use penstock_http_wire::answer::{
    BodyFraming, ChunkDecoder, ChunkStep, Http1ResponseHead, MalformedMessage, ResponseHeadScan,
};
use pingora_core::protocols::Stream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Number of bytes that are reserved for a response head; most heads are smaller.
const INITIAL_READ: usize = 4 * 1024;
/// Number of bytes that are reserved for an event of a stream; most events are smaller.
const EVENT_READ: usize = 1024;
/// Maximum bytes per read of a body with a known length.
const BODY_READ: usize = 64 * 1024;
/// Maximum bytes per read of a stream. It is smaller than `BODY_READ`, because the bytes of one read are processed in
/// one poll, while other tasks wait.
const STREAM_READ: usize = 16 * 1024;
/// Spare capacity below which the buffer is enlarged, in bytes.
const MIN_SPARE: usize = 512;

/// Failure of an exchange before its answer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The answer violates the protocol.
    Malformed,
    /// The connection ended, failed, or timed out.
    Gone,
    /// The connection or stream ended before the provider processed the request, so that it can be sent again.
    NotProcessed,
}

impl From<MalformedMessage> for TransportError {
    fn from(_: MalformedMessage) -> Self {
        Self::Malformed
    }
}

/// HTTP/1.1 connection with the answer that is read from it.
pub struct Http1Exchange {
    stream: Stream,
    /// Received bytes that were not consumed yet.
    buffer: BytesMut,
    /// Bytes to reserve for the next read.
    next_read: usize,
    head: Option<(Http1ResponseHead, Bytes)>,
    body: BodyReader,
    /// Timeout of each read; `None` for no timeout.
    read_timeout: Option<Duration>,
}

/// State of the body of the last response head.
enum BodyReader {
    /// Body of a known length, with the number of bytes that were not read yet.
    Left(u64),
    Chunked(ChunkDecoder),
    /// Body that ends with the connection.
    Close,
    /// Body that was read to its end, or no body.
    Over,
}

impl Http1Exchange {
    /// Creates an exchange on a connection that is new or idle.
    pub fn new(stream: Stream) -> Self {
        let buffer = BytesMut::new();
        Self {
            stream,
            buffer,
            next_read: INITIAL_READ,
            head: None,
            body: BodyReader::Over,
            read_timeout: None,
        }
    }

    /// Returns the stream of the connection, for writes.
    pub const fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Sets the read timeout; without this call, reads have no timeout.
    pub const fn set_read_timeout(&mut self, read_timeout: Duration) {
        self.read_timeout = Some(read_timeout);
    }

    /// Writes a request with a short body.
    ///
    /// # Errors
    /// Returns the I/O error of a failed write.
    pub async fn send_request(&mut self, head: &[u8], body: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(head).await?;
        self.stream.write_all(body).await?;
        self.stream.flush().await
    }

    /// Reads the next response head, which may be informational (1xx), and returns its status.
    ///
    /// # Errors
    /// Returns an error if the head is malformed, or the connection ends or times out before it.
    pub async fn read_head(&mut self) -> Result<u16, TransportError> {
        let mut scan = ResponseHeadScan::default();
        loop {
            let read =
                if scan.should_parse(&self.buffer) { Http1ResponseHead::parse(&self.buffer)? } else { None };
            let Some(head) = read else {
                match self.fill_buffer().await? {
                    0 => return Err(TransportError::Gone),
                    _ => continue,
                }
            };
            self.body = match head.framing {
                BodyFraming::Length(0) => BodyReader::Over,
                BodyFraming::Length(length) => {
                    self.next_read = usize::try_from(length)
                        .map_or(BODY_READ, |length| length.clamp(MIN_SPARE, BODY_READ));
                    BodyReader::Left(length)
                }
                BodyFraming::Chunked => BodyReader::Chunked(ChunkDecoder::default()),
                BodyFraming::UntilClose => BodyReader::Close,
            };
            let bytes = self.buffer.split_to(head.size);
            let bytes = match head.framing {
                BodyFraming::Length(_) => bytes.freeze(),
                BodyFraming::Chunked | BodyFraming::UntilClose => {
                    self.shrink_buffer();
                    Bytes::copy_from_slice(&bytes)
                }
            };
            self.head = Some((head, bytes));
            return Ok(head.status);
        }
    }

    /// Returns the status of the last head; `None` before the first head.
    pub fn status(&self) -> Option<u16> {
        self.head.as_ref().map(|(head, _)| head.status)
    }

    /// Returns a header of the last head; `None` if it has no such header, and before the first head.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.head.as_ref().and_then(|(_, bytes)| penstock_http_wire::answer::header_value(bytes, name))
    }

    /// Reads the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// Returns an error if the body is truncated or malformed.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            match &mut self.body {
                BodyReader::Over => return Ok(None),
                BodyReader::Chunked(chunks) => match chunks.decode_next(&mut self.buffer)? {
                    ChunkStep::Data(data) => return Ok(Some(data)),
                    ChunkStep::End => self.body = BodyReader::Over,
                    ChunkStep::Incomplete => self.read_more().await?,
                },
                _ if self.buffer.is_empty() => match self.fill_buffer().await? {
                    0 if matches!(self.body, BodyReader::Close) => self.body = BodyReader::Over,
                    0 => return Err(TransportError::Gone),
                    _ => {}
                },
                BodyReader::Close => return Ok(Some(self.buffer.split().freeze())),
                BodyReader::Left(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.buffer.len());
                    *left -= count as u64;
                    if *left == 0 {
                        self.body = BodyReader::Over;
                    }
                    return Ok(Some(self.buffer.split_to(count).freeze()));
                }
            }
        }
    }

    /// Returns true if no byte of an answer has arrived.
    pub fn is_unanswered(&self) -> bool {
        self.head.is_none() && self.buffer.is_empty()
    }

    /// Returns true if the answer was read completely; also true before the first head.
    pub const fn is_complete(&self) -> bool {
        matches!(self.body, BodyReader::Over)
    }

    /// Returns the connection if it can serve another request: the answer was read completely, no bytes follow it, and
    /// its head does not close the connection. Otherwise closes the connection and returns `None`.
    pub fn into_reusable_stream(self) -> Option<Stream> {
        let reusable = matches!(self.body, BodyReader::Over)
            && self.buffer.is_empty()
            && self.head.is_some_and(|(head, _)| !head.is_last && head.status >= 200);
        reusable.then_some(self.stream)
    }

    /// Shrinks the buffer to the size of one or two events, because a stream lasts long and would otherwise hold the
    /// buffer that was allocated for its head.
    fn shrink_buffer(&mut self) {
        self.next_read = EVENT_READ;
        if self.buffer.len() <= EVENT_READ {
            let mut fit = BytesMut::with_capacity(EVENT_READ);
            fit.extend_from_slice(&self.buffer);
            self.buffer = fit;
        }
    }

    async fn read_more(&mut self) -> Result<(), TransportError> {
        match self.fill_buffer().await? {
            0 => Err(TransportError::Gone),
            _ => Ok(()),
        }
    }

    /// Reads once and returns the number of bytes. If the read fills the buffer, the next one reserves twice as much.
    async fn fill_buffer(&mut self) -> Result<usize, TransportError> {
        if self.buffer.capacity() - self.buffer.len() < MIN_SPARE {
            self.buffer.reserve(self.next_read);
        }
        let spare = self.buffer.capacity() - self.buffer.len();
        let read = self.stream.read_buf(&mut self.buffer);
        let read = match self.read_timeout {
            None => read.await,
            Some(read_timeout) => timeout(read_timeout, read).await.map_err(|_| TransportError::Gone)?,
        };
        let read = read.map_err(|_| TransportError::Gone)?;
        read_budget::charge_bytes(read);
        if read == spare {
            let most = if matches!(self.body, BodyReader::Left(_)) { BODY_READ } else { STREAM_READ };
            self.next_read = (spare * 2).clamp(EVENT_READ, most);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
