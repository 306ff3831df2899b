//! Inspection of HTTP/2 frames of a provider before the library reads them. The library answers or ignores some frames
//! without a bound: pings, settings, informational heads, and data of reset streams. A provider that sends too many of
//! them loses its connection.

use super::connect::H2_WINDOW;
use crate::net::read_budget;
use async_trait::async_trait;
use penstock_http_wire::http2_frames::{FrameHead, FrameHeadReader};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use std::collections::BTreeSet;
use std::io::{Error, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The time that a limit is for.
const WINDOW: Duration = Duration::from_secs(1);
/// Frames without content in that time, beyond those that requests explain.
const EMPTY: u64 = 1_000;
/// Bytes of requests that explain one frame more: a head of an answer, or a window that opens for a body.
const EXPLAINED: u64 = 64;
/// Streams that were reset and are still known as that.
const RESETS: usize = 1_024;

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;

/// A connection to a provider, both directions counted.
#[derive(Debug)]
pub(super) struct Counted {
    stream: Stream,
    read: FrameHeadReader,
    wrote: FrameHeadReader,
    count: Count,
}

/// Number of superfluous frames.
#[derive(Debug)]
struct Count {
    /// Frames without content since `since`.
    empty: u64,
    /// Bytes of requests since then.
    written: u64,
    since: Instant,
    /// Streams that the gateway has reset.
    resets: BTreeSet<u32>,
    /// Bytes that may still come for them: what was on its way when they were reset.
    late: u64,
}

impl Counted {
    /// Of a connection on which nothing was said yet.
    pub(super) fn new(stream: Stream) -> Self {
        let (read, wrote) = (FrameHeadReader::for_server(), FrameHeadReader::for_client());
        Self { stream, read, wrote, count: Count::new() }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        let count = &mut self.count;
        count.written += bytes.len() as u64;
        self.wrote.push(bytes, |head| count.sent(head));
    }
}

impl Count {
    fn new() -> Self {
        Self { empty: 0, written: 0, since: Instant::now(), resets: BTreeSet::new(), late: 0 }
    }

    /// A frame to the provider.
    fn sent(&mut self, head: FrameHead) {
        if head.kind == RST_STREAM && self.resets.insert(head.stream) {
            self.late += u64::from(H2_WINDOW);
            if self.resets.len() > RESETS {
                self.resets.pop_first();
            }
        }
    }

    /// A frame of the provider's; an error if it is one too many.
    fn heard(&mut self, head: FrameHead) -> Result<()> {
        if head.kind == DATA && head.length > 0 {
            if self.resets.contains(&head.stream) {
                let left = self.late.checked_sub(u64::from(head.length));
                self.late = left.ok_or_else(|| Error::other("data of a stream that was reset"))?;
            }
            return Ok(());
        }
        self.empty += 1;
        if self.empty <= EMPTY + self.written / EXPLAINED {
            return Ok(());
        }
        let now = Instant::now();
        if now - self.since < WINDOW {
            return Err(Error::other("a flood of frames without content"));
        }
        (self.since, self.empty, self.written) = (now, 0, 0);
        Ok(())
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // The task that drives the connection shares its thread with requests.
        ready!(read_budget::poll_budget(cx));
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().get(before..).unwrap_or_default();
        read_budget::charge_bytes(bytes.len());
        let Self { read, count, .. } = &mut *self;
        let mut sound = Ok(());
        read.push(bytes, |head| {
            if sound.is_ok() {
                sound = count.heard(head);
            }
        });
        Poll::Ready(sound)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.wrote(buf.get(..wrote).unwrap_or_default());
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        let mut left = wrote;
        for buf in bufs {
            let here = left.min(buf.len());
            self.wrote(buf.get(..here).unwrap_or_default());
            left -= here;
        }
        Poll::Ready(Ok(wrote))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

// All else is the connection's own.

#[async_trait]
impl Shutdown for Counted {
    async fn shutdown(&mut self) {
        self.stream.shutdown().await;
    }
}

impl UniqueID for Counted {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Counted {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl Peek for Counted {}

impl GetTimingDigest for Counted {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }
}

impl GetProxyDigest for Counted {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Counted {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(kind: u8, length: u32, stream: u32) -> FrameHead {
        FrameHead { length, kind, flags: 0, stream }
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_content_are_bounded_in_a_second_and_explained_by_requests() {
        for kind in [DATA, 1, 4, 6, 7, 8, 9, 0x42] {
            let mut count = Count::new();
            let most = EMPTY + 10;
            count.written = 10 * EXPLAINED;
            assert!((0..most).all(|_| count.heard(frame(kind, 0, 1)).is_ok()), "{kind}");
            assert!(count.heard(frame(kind, 0, 1)).is_err(), "{kind}: one more");
            tokio::time::advance(WINDOW).await;
            assert!(count.heard(frame(kind, 0, 1)).is_ok(), "{kind}: in the next second");
        }
        let mut count = Count::new();
        assert!(
            (0..100_000).all(|_| count.heard(frame(DATA, 1, 1)).is_ok()),
            "content has windows of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_stream_that_was_reset_a_window_may_still_come() {
        let mut count = Count::new();
        count.sent(frame(RST_STREAM, 4, 3));
        count.sent(frame(RST_STREAM, 4, 3));
        assert!(count.heard(frame(DATA, H2_WINDOW, 3)).is_ok());
        assert!(count.heard(frame(DATA, 1, 5)).is_ok(), "another stream is not concerned");
        assert!(count.heard(frame(DATA, 1, 3)).is_err());
        count.sent(frame(RST_STREAM, 4, 5));
        assert!(count.heard(frame(DATA, H2_WINDOW, 5)).is_ok() && count.heard(frame(DATA, 1, 5)).is_err());
        for stream in 0..3_000 {
            count.sent(frame(RST_STREAM, 4, stream * 2 + 1));
        }
        assert_eq!(count.resets.len(), RESETS);
    }
}
