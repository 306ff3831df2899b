//! TCP connection in clear text or beneath TLS, as Pingora reads and writes it. Beneath TLS small writes are buffered,
//! so that a head and a short body are one packet. A write that the peer does not accept fails after a time limit.

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

/// Size of the write buffer under TLS, whose records come piece by piece. In clear text there is no buffer: writes are
/// combined before.
const WRITE_TLS: usize = 4 * 1024;
/// Size of the read buffer in clear text: small, because readers bring buffers of their own, and a longer read bypasses
/// it.
const READ_PLAIN: usize = 512;
/// Size of the read buffer under TLS, whose records are read piece by piece.
const READ_TLS: usize = 16 * 1024;

/// Connected TCP socket.
#[derive(Debug)]
pub struct Socket {
    io: BufReader<BufWriter<TcpStream>>,
    patience: Duration,
    /// Deadline of the pending write; none if no write is pending.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Socket {
    /// Wraps a socket that was accepted on any thread and registers it with this thread. `patience` is the time limit
    /// on a write that the client does not read.
    ///
    /// # Errors
    /// Returns an error if the client is gone already.
    pub fn new(accepted: std::net::TcpStream, tls: bool, patience: Duration) -> Result<Self> {
        accepted.set_nonblocking(true)?;
        accepted.set_nodelay(true)?;
        let (write, read) = if tls { (WRITE_TLS, READ_TLS) } else { (0, READ_PLAIN) };
        let writer = BufWriter::with_capacity(write, TcpStream::from_std(accepted)?);
        Ok(Self { io: BufReader::with_capacity(read, writer), patience, waits: None })
    }

    /// Wraps a connection to a provider, which reads all that is written to it; `patience` is the time limit on each
    /// write. Writes are not buffered: requests are written in one piece.
    ///
    /// # Errors
    /// Returns an error if the provider is gone already.
    pub fn towards(connected: TcpStream, patience: Duration) -> Result<Self> {
        connected.set_nodelay(true)?;
        let writer = BufWriter::with_capacity(0, connected);
        Ok(Self { io: BufReader::with_capacity(READ_PLAIN, writer), patience, waits: None })
    }

    /// Returns true if the connection is a socket in clear text without buffered data.
    #[must_use]
    pub fn can_move(stream: &Stream) -> bool {
        let at_rest = |Self { io, .. }: &Self| io.buffer().is_empty() && io.get_ref().buffer().is_empty();
        (**stream).as_any().downcast_ref::<Self>().is_some_and(at_rest)
    }

    /// Returns true if the connection is a socket in clear text that was reset, which reads do not report once the peer
    /// has closed its sending side. `None` if this cannot be known.
    #[must_use]
    pub fn was_reset(stream: &Stream) -> Option<bool> {
        let socket = (**stream).as_any().downcast_ref::<Self>()?;
        Some(!matches!(socket.io.get_ref().get_ref().take_error(), Ok(None)))
    }

    /// Registers a connection that can move with the thread to which it has moved.
    ///
    /// # Errors
    /// Returns an error if the connection cannot move, or if its client is gone.
    pub fn moved(stream: Stream) -> Result<Stream> {
        let socket = stream.into_any().downcast::<Self>().map_err(|_| ErrorKind::InvalidInput)?;
        let Self { io, patience, .. } = *socket;
        Ok(Box::new(Self::new(io.into_inner().into_inner().into_std()?, false, patience)?))
    }

    /// Fails a pending write with [`ErrorKind::TimedOut`] after the time limit.
    fn within<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<Result<T>>) -> Poll<Result<T>> {
        if wrote.is_ready() {
            self.waits = None;
            return wrote;
        }
        let patience = self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(patience)));
        waits.as_mut().poll(cx).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, buf);
        self.within(cx, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let wrote = Pin::new(&mut self.io).poll_flush(cx);
        self.within(cx, wrote)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let wrote = Pin::new(&mut self.io).poll_shutdown(cx);
        self.within(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.within(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl UniqueID for Socket {
    fn id(&self) -> UniqueIDType {
        self.io.get_ref().get_ref().as_raw_fd()
    }
}

#[async_trait]
impl Shutdown for Socket {
    async fn shutdown(&mut self) {
        self.io.shutdown().await.ok();
    }
}

impl Ssl for Socket {}

impl Peek for Socket {}

// Pingora would log these digests of a connection; the gateway has its own records.

impl GetTimingDigest for Socket {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for Socket {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        None
    }
}

impl GetSocketDigest for Socket {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        None
    }
}
