//! Flood guard of an HTTP/2 connection. It counts the received frames that carry no request data (pings, settings,
//! priorities, resets, window updates, empty data, unknown types). Such frames are cheap for the client, but cost the
//! gateway as much as other frames, so too many of them end the connection. The guard also counts the streams that the
//! gateway resets because the client violated the protocol. After a graceful shutdown, it reads and discards the
//! remaining bytes of the client until the client closes its side.

use super::http2::StreamCounts;
use crate::http::{LINGER_IDLE, LINGER_TIMEOUT};
use crate::net::read_budget;
use crate::net::stream_delegation::delegate_stream_traits;
use penstock_http_wire::http2_frames::FrameHeaderParser;
use pingora_core::protocols::Stream;
use std::future::Future;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Interval to which the frame limit applies.
const COUNT_WINDOW: Duration = Duration::from_secs(1);
/// Number of response bytes for which the client may send one more frame: it has to send window updates for the bytes
/// that it receives.
const BYTES_PER_FRAME: u64 = 64;
/// Error code of a stream that violates the protocol (RFC 9113 §7).
const PROTOCOL_ERROR: u32 = 1;
/// Number of bytes per read while remaining input is discarded.
const LINGER_READ: usize = 4 << 10;

/// Stream of an HTTP/2 connection that counts the frames in both directions.
#[derive(Debug)]
pub(super) struct FloodGuardStream {
    stream: Stream,
    streams: Arc<StreamCounts>,
    max_frames: u64,
    count: FrameCounter,
    written: u64,
    /// Parser of the headers of the frames that the gateway sends.
    sent: FrameHeaderParser,
    window_start: Instant,
    linger: Option<LingeringClose>,
}

/// State of a connection whose write side is closed, until the client closes its side.
#[derive(Debug)]
struct LingeringClose {
    /// Timer that fires after [`LINGER_IDLE`] without input.
    idle_timer: Pin<Box<Sleep>>,
    deadline: Instant,
}

/// Counter of frames without request data.
#[derive(Debug)]
struct FrameCounter {
    heads: FrameHeaderParser,
    empty: u64,
}

impl FloodGuardStream {
    /// Creates the guard of a new connection, which allows `max_frames` frames without request data per second.
    pub(super) fn new(stream: Stream, streams: Arc<StreamCounts>, max_frames: usize) -> Self {
        let count = FrameCounter::new();
        Self {
            stream,
            streams,
            max_frames: max_frames as u64,
            count,
            written: 0,
            sent: FrameHeaderParser::for_server_bytes(),
            window_start: Instant::now(),
            linger: None,
        }
    }

    /// Counts sent bytes, and the streams that are reset because the client violated the protocol.
    fn count_sent<'b>(&mut self, buffers: impl Iterator<Item = &'b [u8]>, mut wrote: usize) {
        self.written += wrote as u64;
        let mut faulty = 0;
        for buffer in buffers {
            let part = buffer.get(..wrote.min(buffer.len())).unwrap_or_default();
            wrote -= part.len();
            self.sent.push(part, |head| faulty += usize::from(head.error_code == Some(PROTOCOL_ERROR)));
        }
        if faulty > 0 {
            self.streams.add_faulty_streams(faulty);
        }
    }

    /// Returns true if there were too many frames without request data within the interval. Each time that the limit is
    /// reached, a new interval starts.
    fn is_flooded(&mut self) -> bool {
        if self.count.empty <= self.max_frames + self.written / BYTES_PER_FRAME {
            return false;
        }
        let now = Instant::now();
        let flooded = now - self.window_start < COUNT_WINDOW;
        self.window_start = now;
        self.count.empty = 0;
        self.written = 0;
        flooded
    }
}

impl FrameCounter {
    fn new() -> Self {
        Self { heads: FrameHeaderParser::for_client_bytes(), empty: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let empty = &mut self.empty;
        self.heads.push(bytes, |head| {
            let has_data = match head.kind {
                // A data frame counts as request data if it has bytes or ends its stream.
                0 => head.length > 0 || head.flags & 1 == 1,
                // A headers frame counts as request data, because the number of streams has its own limit.
                1 => true,
                _ => false,
            };
            *empty += u64::from(!has_data);
        });
    }
}

impl AsyncRead for FloodGuardStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        ready!(read_budget::poll_budget(cx));
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        read_budget::charge_bytes(buf.filled().len() - before);
        self.count.push(buf.filled().get(before..).unwrap_or_default());
        if self.is_flooded() {
            self.streams.mark_abuse();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FloodGuardStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.count_sent(std::iter::once(buf), wrote);
        Poll::Ready(Ok(wrote))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Self { stream, streams, linger, .. } = &mut *self;
        let linger = match linger {
            Some(linger) => linger,
            None => {
                ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
                let deadline = Instant::now() + LINGER_TIMEOUT;
                linger.insert(LingeringClose { idle_timer: Box::pin(sleep(LINGER_IDLE)), deadline })
            }
        };
        if !streams.is_closing_gracefully() {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [0; LINGER_READ];
        loop {
            let mut piece = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut piece) {
                // The deadline is checked here, since the timer is not polled while the client sends without a pause.
                Poll::Ready(Ok(())) if !piece.filled().is_empty() && Instant::now() < linger.deadline => {
                    let idle_deadline = Instant::now() + LINGER_IDLE;
                    linger.idle_timer.as_mut().reset(idle_deadline.min(linger.deadline));
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return linger.idle_timer.as_mut().poll(cx).map(Ok),
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.count_sent(bufs.iter().map(|buffer| &**buffer), wrote);
        Poll::Ready(Ok(wrote))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

delegate_stream_traits!(FloodGuardStream);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn empty_frames_are_counted_at_every_split() {
        let mut bytes = vec![b'P'; 24];
        for (kind, flags, payload) in [
            (4, 0, &[][..]),
            (1, 4, b"headers"),
            (0, 0, b"data"),
            (0, 0, b""),
            (0, 1, b""),
            (6, 0, b"12345678"),
            (8, 0, b"1234"),
            (9, 0, b"more"),
            (0x42, 0, b"what"),
        ] {
            bytes.extend(frame(kind, flags, payload));
        }
        for cut in 1..bytes.len() {
            let mut count = FrameCounter::new();
            bytes.chunks(cut).for_each(|piece| count.push(piece));
            assert_eq!((count.empty, count.heads.is_at_frame_end()), (6, true), "{cut}");
        }
    }
}
