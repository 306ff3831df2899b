//! Stream of one HTTP/1.1 request. Reads end at the end of the request, so that Pingora's session never sees bytes of
//! the next request. Such bytes are stored until the next request head is read. Writes are joined: a response head is
//! sent together with the first bytes of its body. When the session is dropped, the connection returns to the
//! connection guard (`crate::server`), so that a client that is still sending can receive a refusal.

mod connection_state;
mod session_traits;

pub use connection_state::Http1ConnectionState;
pub(crate) use connection_state::ReturnedStream;

use crate::net::buffered_stream::BufferedSocket;
use bytes::{Buf, BytesMut};
use penstock_http_wire::answer::ChunkedBodyScanner;
use pingora_core::protocols::Stream;
use std::future::Future;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Maximum number of stored bytes of pipelined requests, which a client sends before it has its response.
const MAX_PREFETCHED_BYTES: usize = 16 << 10;
/// Maximum number of further bytes that are read and discarded. The end of the connection can be detected only after
/// these bytes are read.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// Maximum bytes per read after the end of a request.
const PROBE_READ_BYTES: usize = 512;
/// Size of the write buffer: smaller writes are joined with those before and after them.
const WRITE_BUFFER_BYTES: usize = 16 << 10;
/// Initial size of the write buffer: most heads with a short body fit.
const INITIAL_WRITE_BUFFER_BYTES: usize = 4 << 10;
/// Maximum slices of one vectored write.
const MAX_WRITE_SLICES: usize = 8;

/// Framing state of a request's body: the part that has not arrived.
#[derive(Debug)]
enum FramingState {
    /// Body of a known length, with the number of bytes that have not arrived.
    Length(u64),
    Chunked(ChunkedBodyScanner),
    /// Request body with an invalid chunked encoding.
    Malformed,
    Complete,
}

/// Framing of a request, as the guard parsed it from the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFraming {
    /// Length of the request head, in bytes.
    pub(crate) head: usize,
    /// Bytes of the body, `None` for a chunked one.
    pub(crate) body: Option<u64>,
    /// False for HTTP/1.0, whose clients know no interim responses.
    pub(crate) allows_interim: bool,
}

/// State of the client's sending side of the connection after the request.
#[derive(Debug)]
enum ClientSide {
    Open,
    /// Half-closed connection: the client has closed its sending side. An interim response was sent to it, unless it
    /// uses HTTP/1.0. If the client has closed the connection completely, its system replies with a reset; `look` is
    /// the timer of the next check for this reset.
    HalfClosed {
        look: Pin<Box<Sleep>>,
        pause: Duration,
    },
}

/// Interim response that distinguishes a half-closed connection from a closed one. Clients must accept any number of
/// unrequested interim responses (RFC 9110 §15.2).
const INTERIM_RESPONSE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Pause before the first check of a half-closed connection. Each further pause is twice as long, up to [`PAUSE_CAP`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Maximum pause between two checks of a half-closed connection.
const PAUSE_CAP: Duration = Duration::from_secs(1);

/// State of the probe: an interim response that shows if a client that closed its sending side still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterimProbe {
    /// An interim response may be sent: none was sent yet, and no byte of the response.
    Allowed,
    /// No interim response may be sent, because HTTP/1.0 has none. The client gets its response unless its connection
    /// was reset.
    Unknown,
    /// No further interim response may be sent.
    Spent,
}

/// Stream of one request, with the connection that it gives back on drop.
#[derive(Debug)]
pub(crate) struct Http1RequestStream {
    /// Stream of the connection; taken on drop.
    stream: Option<Stream>,
    body: FramingState,
    prefetched: BytesMut,
    discarded: usize,
    client: ClientSide,
    interim: InterimProbe,
    out: BytesMut,
    connection: Arc<Http1ConnectionState>,
}

impl Http1RequestStream {
    /// Creates the stream of a request with this framing. `received` begins with the head of the request; the bytes
    /// that belong to the request are returned, and later bytes are stored.
    pub(crate) fn new(
        stream: Stream,
        framing: RequestFraming,
        mut received: BytesMut,
        connection: Arc<Http1ConnectionState>,
    ) -> (Self, BytesMut) {
        let RequestFraming { head, body: length, allows_interim } = framing;
        let mut body =
            length.map_or_else(|| FramingState::Chunked(ChunkedBodyScanner::default()), FramingState::Length);
        let body_prefix = body.advance(received.get(head..).unwrap_or_default()).unwrap_or(0);
        connection.body_prefix.store(body_prefix, Ordering::Relaxed);
        connection.written.store(connection.sent_bytes(), Ordering::Relaxed);
        let own = head + body_prefix;
        // A split without further bytes would cost an allocation, so it is avoided.
        let prefetched = if own < received.len() { received.split_off(own) } else { BytesMut::new() };
        let stream = Self {
            stream: Some(stream),
            body,
            prefetched,
            discarded: 0,
            client: ClientSide::Open,
            interim: if allows_interim { InterimProbe::Allowed } else { InterimProbe::Unknown },
            out: BytesMut::new(),
            connection,
        };
        (stream, received)
    }

    /// Reads bytes after the request: stores the first ones, and discards the others. Ready when the connection has
    /// ended, or when the client has closed its sending side and cannot be probed: it may still wait for the response
    /// (RFC 9112 §9.6), but only a probe could show that.
    fn poll_after_request(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.discarded < MAX_DISCARDED_BYTES {
            if let ClientSide::HalfClosed { .. } = self.client {
                return self.poll_half_closed(cx);
            }
            let mut bytes = [0; PROBE_READ_BYTES];
            let mut piece = ReadBuf::new(&mut bytes);
            let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
            ready!(Pin::new(stream).poll_read(cx, &mut piece))?;
            let read = piece.filled();
            if read.is_empty() {
                if !self.probe_half_closed_client(cx) {
                    return Poll::Ready(Ok(()));
                }
            } else if self.prefetched.len() < MAX_PREFETCHED_BYTES {
                self.prefetched.extend_from_slice(read);
            } else {
                self.discarded += read.len();
                self.connection.discarded.store(true, Ordering::Relaxed);
            }
        }
        Poll::Pending
    }

    /// Begins to check if a client that has ended its sending side still waits for the response: sends an interim
    /// response, unless the client speaks HTTP/1.0, and then watches for a reset. Returns false if the connection was
    /// reset, or the interim response could not be sent.
    fn probe_half_closed_client(&mut self, cx: &mut Context<'_>) -> bool {
        let probe = std::mem::replace(&mut self.interim, InterimProbe::Spent);
        let Some(stream) = self.stream.as_mut().filter(|_| probe != InterimProbe::Spent) else {
            return false;
        };
        if BufferedSocket::was_reset(stream) != Some(false) {
            return false;
        }
        if probe == InterimProbe::Allowed {
            let wrote = Pin::new(&mut *stream).poll_write(cx, INTERIM_RESPONSE);
            if !matches!(wrote, Poll::Ready(Ok(wrote)) if wrote == INTERIM_RESPONSE.len()) {
                return false;
            }
        }
        self.client = ClientSide::HalfClosed { look: Box::pin(sleep(FIRST_PAUSE)), pause: FIRST_PAUSE };
        true
    }

    /// Checks at growing intervals if a half-closed connection was reset; ready when it was.
    fn poll_half_closed(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let (Some(stream), ClientSide::HalfClosed { look, pause }) = (&self.stream, &mut self.client) else {
            return Poll::Ready(Ok(()));
        };
        loop {
            ready!(look.as_mut().poll(cx));
            if BufferedSocket::was_reset(stream) != Some(false) {
                return Poll::Ready(Ok(()));
            }
            *pause = (*pause * 2).min(PAUSE_CAP);
            look.as_mut().reset(Instant::now() + *pause);
        }
    }

    /// Reads body bytes of a known length directly into the buffer of [`Http1ConnectionState::poll_body_into`];
    /// returns `None` if there is no such buffer. Returns pending even after a read, because Pingora's session must
    /// not see these bytes. No wake-up is needed then: the task finds the bytes in its buffer.
    fn poll_body_target(&mut self, cx: &mut Context<'_>) -> Option<Poll<Result<()>>> {
        let FramingState::Length(left) = &mut self.body else { return None };
        let mut target = self.connection.body_target.lock();
        let (target, stream) = (target.as_mut()?, self.stream.as_mut()?);
        let mut rest = stream.take(*left);
        let read = pin!(rest.read_buf(target)).poll(cx);
        Some(match read {
            Poll::Ready(Ok(read @ 1..)) => {
                *left = left.saturating_sub(read as u64);
                self.body.settle();
                Poll::Pending
            }
            ended => ended.map_ok(|_| ()),
        })
    }

    /// Sends the buffered bytes, and frees the buffer.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.out))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                wrote => {
                    self.connection.sent.fetch_add(wrote, Ordering::Relaxed);
                    self.out.advance(wrote);
                }
            }
        }
        // The buffer is freed, because a stream may wait for minutes.
        self.out = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    fn inner(&self) -> Option<&Stream> {
        self.stream.as_ref()
    }
}

impl FramingState {
    /// Advances by received bytes. Returns the number of bytes that belong to the body; `None` if the encoding is
    /// invalid.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let own = match self {
            Self::Length(left) => {
                let own = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= own as u64;
                Some(own)
            }
            Self::Chunked(boundary) => boundary.push(bytes).ok(),
            Self::Malformed => None,
            Self::Complete => Some(0),
        };
        if own.is_none() {
            *self = Self::Malformed;
        }
        self.settle();
        own
    }

    /// Marks the body as complete if no bytes of it remain.
    fn settle(&mut self) {
        match self {
            Self::Length(0) => *self = Self::Complete,
            Self::Chunked(boundary) if boundary.is_complete() => *self = Self::Complete,
            _ => {}
        }
    }
}

impl Drop for Http1RequestStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let reusable = matches!(self.body, FramingState::Complete) && self.discarded == 0;
        let prefetched = std::mem::take(&mut self.prefetched);
        *self.connection.returned.lock() = Some(ReturnedStream { stream, prefetched, reusable });
    }
}

impl AsyncRead for Http1RequestStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if let Some(read) = this.poll_body_target(cx) {
            return read;
        }
        let Some(stream) = &mut this.stream else { return Poll::Ready(Ok(())) };
        let before = buf.filled().len();
        match &this.body {
            FramingState::Complete => return this.poll_after_request(cx),
            FramingState::Malformed => return Poll::Ready(Err(ErrorKind::InvalidData.into())),
            // The read is limited to the body, so that bytes of the next request stay in the socket.
            FramingState::Length(left) => ready!(Pin::new(&mut stream.take(*left)).poll_read(cx, buf))?,
            FramingState::Chunked(_) => ready!(Pin::new(stream).poll_read(cx, buf))?,
        }
        let read = buf.filled().get(before..).unwrap_or_default();
        let Some(own) = this.body.advance(read) else {
            buf.set_filled(before);
            return Poll::Ready(Err(ErrorKind::InvalidData.into()));
        };
        this.prefetched.extend_from_slice(read.get(own..).unwrap_or_default());
        buf.set_filled(before + own);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http1RequestStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = &mut *self;
        this.interim = InterimProbe::Spent;
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if !this.connection.admitted.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(length));
        }
        if this.out.len() + length <= WRITE_BUFFER_BYTES {
            if this.out.capacity() == 0 {
                this.out.reserve(INITIAL_WRITE_BUFFER_BYTES);
            }
            slices.iter().for_each(|slice| this.out.extend_from_slice(slice));
            this.connection.written.fetch_add(length, Ordering::Relaxed);
            return Poll::Ready(Ok(length));
        }
        loop {
            let Some(stream) = &mut this.stream else {
                return Poll::Ready(Err(ErrorKind::NotConnected.into()));
            };
            let mut all = [IoSlice::new(&[]); MAX_WRITE_SLICES];
            let from = std::iter::once(&*this.out).chain(slices.iter().map(|slice| &**slice));
            let count = all.iter_mut().zip(from).map(|(slot, slice)| *slot = IoSlice::new(slice)).count();
            let slots = all.get(..count).unwrap_or_default();
            let wrote = ready!(Pin::new(stream).poll_write_vectored(cx, slots))?;
            if wrote == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            this.connection.sent.fetch_add(wrote, Ordering::Relaxed);
            let waited = this.out.len().min(wrote);
            this.out.advance(waited);
            if wrote > waited {
                this.connection.written.fetch_add(wrote - waited, Ordering::Relaxed);
                return Poll::Ready(Ok(wrote - waited));
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.connection.corked.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(cx))?;
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        Pin::new(stream).poll_flush(cx)
    }

    /// Sends the buffered bytes. The guard closes the connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.poll_drain(cx)
    }
}
