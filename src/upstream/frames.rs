//! Counting of the HTTP/2 frames of a provider before the library reads them. The library answers or ignores some
//! frames without a limit: pings, settings, informational heads, and data of streams that were reset. If a provider
//! sends too many of them, its connection is closed.

use super::connect::PROVIDER_STREAM_WINDOW_BYTES;
use crate::net::read_budget;
use crate::net::stream_delegation::delegate_stream_traits;
use penstock_http_wire::http2_frames::{FrameHeader, FrameHeaderParser};
use pingora_core::protocols::Stream;
use std::collections::BTreeSet;
use std::io::{Error, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Time window to which the limits apply.
const COUNT_WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of frames without content per window. Request bytes allow further frames, see [`BYTES_PER_FRAME`].
const MAX_EMPTY_FRAMES: u64 = 1_000;
/// Number of sent request bytes that allow one more frame without content. A provider replies to a request with such
/// frames: the response head, and window updates for the request body.
const BYTES_PER_FRAME: u64 = 64;
/// Maximum number of reset streams whose identifiers are stored.
const MAX_RESET_STREAMS: usize = 1_024;

const FRAME_DATA: u8 = 0;
const FRAME_RST_STREAM: u8 = 3;

/// Connection to a provider whose frames are counted in both directions.
#[derive(Debug)]
pub(super) struct FrameCountingStream {
    stream: Stream,
    /// Parser of the frame headers that the provider sends.
    read: FrameHeaderParser,
    write_parser: FrameHeaderParser,
    count: FrameCounter,
}

/// Counter of frames that carry no content.
#[derive(Debug)]
struct FrameCounter {
    /// Frames without content since `since`.
    empty: u64,
    /// Number of request bytes written since `since`.
    written: u64,
    since: Instant,
    /// Streams that the gateway has reset.
    resets: BTreeSet<u32>,
    /// Bytes that may still arrive for streams that were reset: data that the provider sent before it knew of the
    /// reset.
    late: u64,
}

impl FrameCountingStream {
    /// Wraps a connection on which nothing was sent yet.
    pub(super) fn new(stream: Stream) -> Self {
        let (read, write_parser) =
            (FrameHeaderParser::for_server_bytes(), FrameHeaderParser::for_client_bytes());
        Self { stream, read, write_parser, count: FrameCounter::new() }
    }

    fn wrote(&mut self, bytes: &[u8]) {
        let count = &mut self.count;
        count.written += bytes.len() as u64;
        self.write_parser.push(bytes, |head| count.count_sent(head));
    }
}

impl FrameCounter {
    fn new() -> Self {
        Self { empty: 0, written: 0, since: Instant::now(), resets: BTreeSet::new(), late: 0 }
    }

    /// Counts a frame sent to the provider.
    fn count_sent(&mut self, head: FrameHeader) {
        if head.kind == FRAME_RST_STREAM && self.resets.insert(head.stream) {
            self.late += u64::from(PROVIDER_STREAM_WINDOW_BYTES);
            if self.resets.len() > MAX_RESET_STREAMS {
                self.resets.pop_first();
            }
        }
    }

    /// Counts a frame that was received from the provider. Returns an error if the limit is exceeded.
    fn count_received(&mut self, head: FrameHeader) -> Result<()> {
        if head.kind == FRAME_DATA && head.length > 0 {
            if self.resets.contains(&head.stream) {
                let left = self.late.checked_sub(u64::from(head.length));
                self.late = left.ok_or_else(|| Error::other("data of a stream that was reset"))?;
            }
            return Ok(());
        }
        self.empty += 1;
        if self.empty <= MAX_EMPTY_FRAMES + self.written / BYTES_PER_FRAME {
            return Ok(());
        }
        let now = Instant::now();
        if now - self.since < COUNT_WINDOW {
            return Err(Error::other("a flood of frames without content"));
        }
        (self.since, self.empty, self.written) = (now, 0, 0);
        Ok(())
    }
}

impl AsyncRead for FrameCountingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // The task that drives the connection shares its thread with requests, so it yields when its read budget is
        // used up.
        ready!(read_budget::poll_budget(cx));
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let bytes = buf.filled().get(before..).unwrap_or_default();
        read_budget::charge_bytes(bytes.len());
        let Self { read, count, .. } = &mut *self;
        let mut sound = Ok(());
        read.push(bytes, |head| {
            if sound.is_ok() {
                sound = count.count_received(head);
            }
        });
        Poll::Ready(sound)
    }
}

impl AsyncWrite for FrameCountingStream {
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

delegate_stream_traits!(FrameCountingStream);

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(kind: u8, length: u32, stream: u32) -> FrameHeader {
        FrameHeader { length, kind, flags: 0, stream, error_code: None }
    }

    #[tokio::test(start_paused = true)]
    async fn empty_frames_are_bounded_per_second_and_by_requests() {
        for kind in [FRAME_DATA, 1, 4, 6, 7, 8, 9, 0x42] {
            let mut count = FrameCounter::new();
            let most = MAX_EMPTY_FRAMES + 10;
            count.written = 10 * BYTES_PER_FRAME;
            assert!((0..most).all(|_| count.count_received(frame(kind, 0, 1)).is_ok()), "{kind}");
            assert!(count.count_received(frame(kind, 0, 1)).is_err(), "{kind}: one more");
            tokio::time::advance(COUNT_WINDOW).await;
            assert!(count.count_received(frame(kind, 0, 1)).is_ok(), "{kind}: in the next second");
        }
        let mut count = FrameCounter::new();
        assert!(
            (0..100_000).all(|_| count.count_received(frame(FRAME_DATA, 1, 1)).is_ok()),
            "content has windows of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_stream_may_still_receive_one_window() {
        let mut count = FrameCounter::new();
        count.count_sent(frame(FRAME_RST_STREAM, 4, 3));
        count.count_sent(frame(FRAME_RST_STREAM, 4, 3));
        assert!(count.count_received(frame(FRAME_DATA, PROVIDER_STREAM_WINDOW_BYTES, 3)).is_ok());
        assert!(count.count_received(frame(FRAME_DATA, 1, 5)).is_ok(), "another stream is not concerned");
        assert!(count.count_received(frame(FRAME_DATA, 1, 3)).is_err());
        count.count_sent(frame(FRAME_RST_STREAM, 4, 5));
        assert!(
            count.count_received(frame(FRAME_DATA, PROVIDER_STREAM_WINDOW_BYTES, 5)).is_ok()
                && count.count_received(frame(FRAME_DATA, 1, 5)).is_err()
        );
        for stream in 0..3_000 {
            count.count_sent(frame(FRAME_RST_STREAM, 4, stream * 2 + 1));
        }
        assert_eq!(count.resets.len(), MAX_RESET_STREAMS);
    }
}
