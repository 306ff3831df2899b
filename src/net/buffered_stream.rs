//! Socket of a connection in clear text or below TLS, with the traits that Pingora requires of a stream. Below TLS,
//! small writes are joined, so that a head and a small body are sent in one packet. A write fails if the peer accepts
//! no bytes for longer than the write timeout.

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use std::future::Future;
use std::io::{ErrorKind, IoSlice, Result};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Size in bytes of the write buffer below TLS, which writes its records in small pieces. In clear text there is no
/// write buffer, because the callers join their writes.
const TLS_WRITE_BUFFER: usize = 4 * 1024;
/// Size in bytes of the read buffer in clear text. It is small, because readers have their own buffers, and a read that
/// is longer than this buffer does not use it.
const PLAIN_READ_BUFFER: usize = 512;
/// Size in bytes of the read buffer below TLS, which reads its records in small pieces.
const TLS_READ_BUFFER: usize = 16 * 1024;

/// Connected socket with a read buffer.
#[derive(Debug)]
pub struct BufferedSocket {
    io: BufReader<BufWriter<TcpStream>>,
    write_timeout: Duration,
    /// Deadline of the pending write; `None` while no write waits.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl BufferedSocket {
    /// Registers an accepted socket with the runtime of the current thread; `tls` is true for a socket below TLS. A
    /// write to a client that does not read fails after `patience`.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub fn new(accepted: std::net::TcpStream, tls: bool, patience: Duration) -> Result<Self> {
        accepted.set_nonblocking(true)?;
        accepted.set_nodelay(true)?;
        let (write, read) = if tls { (TLS_WRITE_BUFFER, TLS_READ_BUFFER) } else { (0, PLAIN_READ_BUFFER) };
        let writer = BufWriter::with_capacity(write, TcpStream::from_std(accepted)?);
        Ok(Self { io: BufReader::with_capacity(read, writer), write_timeout: patience, write_deadline: None })
    }

    /// Wraps a connection to a provider, with `patience` as its write timeout. Small writes are not joined, because a
    /// request is written in one piece.
    ///
    /// # Errors
    /// Returns an error if the provider is gone.
    pub fn for_provider(connected: TcpStream, patience: Duration) -> Result<Self> {
        connected.set_nodelay(true)?;
        let writer = BufWriter::with_capacity(0, connected);
        Ok(Self {
            io: BufReader::with_capacity(PLAIN_READ_BUFFER, writer),
            write_timeout: patience,
            write_deadline: None,
        })
    }

    /// Returns true if the stream is a socket in clear text whose buffers are empty, so that it can move to another
    /// thread.
    #[must_use]
    pub fn is_movable_between_threads(stream: &Stream) -> bool {
        let at_rest = |Self { io, .. }: &Self| io.buffer().is_empty() && io.get_ref().buffer().is_empty();
        (**stream).as_any().downcast_ref::<Self>().is_some_and(at_rest)
    }

    /// Returns true if a socket in clear text has a pending error, such as a reset; `None` for a stream of another
    /// type. Reads do not report a reset after the peer has closed its sending side.
    #[must_use]
    pub fn was_reset(stream: &Stream) -> Option<bool> {
        let socket = (**stream).as_any().downcast_ref::<Self>()?;
        Some(!matches!(socket.io.get_ref().get_ref().take_error(), Ok(None)))
    }

    /// Registers a stream that has moved with the runtime of the current thread.
    ///
    /// # Errors
    /// Returns an error if the stream cannot move, or its client is gone.
    pub fn register_moved(stream: Stream) -> Result<Stream> {
        let socket = stream.into_any().downcast::<Self>().map_err(|_| ErrorKind::InvalidInput)?;
        let Self { io, write_timeout: patience, .. } = *socket;
        Ok(Box::new(Self::new(io.into_inner().into_inner().into_std()?, false, patience)?))
    }

    /// Applies the write timeout: returns the result of a write, or an error if it has waited too long.
    fn limit_write<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<Result<T>>) -> Poll<Result<T>> {
        if wrote.is_ready() {
            self.write_deadline = None;
            return wrote;
        }
        let patience = self.write_timeout;
        let waits = self.write_deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits.as_mut().poll(cx).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for BufferedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for BufferedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, buf);
        self.limit_write(cx, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let wrote = Pin::new(&mut self.io).poll_flush(cx);
        self.limit_write(cx, wrote)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let wrote = Pin::new(&mut self.io).poll_shutdown(cx);
        self.limit_write(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.limit_write(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl UniqueID for BufferedSocket {
    fn id(&self) -> UniqueIDType {
        self.io.get_ref().get_ref().as_raw_fd()
    }
}

#[async_trait]
impl Shutdown for BufferedSocket {
    async fn shutdown(&mut self) {
        self.io.shutdown().await.ok();
    }
}

impl Ssl for BufferedSocket {}

impl Peek for BufferedSocket {}

// Digests for Pingora's own connection log, which the gateway does not use: its access log has its own records.

impl GetTimingDigest for BufferedSocket {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for BufferedSocket {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for BufferedSocket {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}
