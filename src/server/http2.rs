//! HTTP/2 connection with concurrent streams, each of which is one exchange. This module adds the limits that the h2
//! library lacks: the preface timeout, the idle timeout, the number of streams that a client opens and resets, and the
//! memory of request heads.

use super::h2_flood_guard::FloodGuardStream;
use super::header_budget::{self, HeaderReservation};
use super::{PublicServer, bad_request, drain_grace, drain_started};
use crate::config::settings::LimitSettings;
use crate::http::H2_STREAM_WINDOW_BYTES;
use crate::http::receive_window::{ActiveBodyCounter, ActiveBodyGuard};
use crate::proxy::{DownstreamHttp2Stream, RequestSource};
use bytes::Bytes;
use penstock_core::ApiError;
use penstock_http_wire::http1_request::HeadError;
use pingora_core::apps::HttpServerApp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession, default_h2_options, handshake,
};
use pingora_core::protocols::{Digest, Stream};
use pingora_core::server::ShutdownWatch;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Receive window of a connection while no body is being read. It is the initial window of the protocol, which is also
/// the minimum. Each body that is being read enlarges it, up to `WIDENED_BODIES` bodies.
pub const CONNECTION_WINDOW_BYTES: u32 = (64 << 10) - 1;
/// Maximum number of bodies that widen the receive window of a connection.
const WIDENED_BODIES: usize = 8;
/// Largest frame that a client may send, bytes.
const MAX_FRAME: u32 = 64 << 10;
/// Limit on the response bytes of one stream that are buffered because its client has not read them yet.
pub const STREAM_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Budget in bytes for the overhead of data frames that are not read yet: a frame of less than 256 bytes counts with
/// its difference to 256. The budget suffices for a connection window of [`CONNECTION_WINDOW_BYTES`] that is filled
/// with frames of 32 bytes.
pub const DATA_FRAME_BUDGET_BYTES: usize = 512 << 10;
/// Time between GOAWAY and the close of an idle connection, and longest time to send GOAWAY to an abusive client.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// Stream counters of one connection.
#[derive(Debug)]
pub(super) struct StreamCounts {
    open: AtomicUsize,
    /// Signal that a stream has ended or that the client is marked as abusive.
    changed: Notify,
    /// Number of streams that the client reset, minus the number of streams that were answered.
    wasted: AtomicUsize,
    max_wasted: usize,
    /// Number of streams that the gateway reset because the client violated the protocol.
    faulty: AtomicUsize,
    is_flooding: AtomicBool,
    going_away: AtomicBool,
}

impl StreamCounts {
    fn new(max_wasted: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            changed: Notify::new(),
            wasted: AtomicUsize::new(0),
            max_wasted,
            faulty: AtomicUsize::new(0),
            is_flooding: AtomicBool::new(false),
            going_away: AtomicBool::new(false),
        }
    }

    /// Returns true if the gateway is closing the connection of a client that is not abusive. The client may still read
    /// the last response and send window updates for it. If the connection were closed with unread bytes, it would be
    /// reset, and the client would lose the part of the response that it has not read.
    pub(super) fn is_closing_gracefully(&self) -> bool {
        self.going_away.load(Ordering::Relaxed) && !self.is_abused()
    }

    /// Marks the client as abusive; its connection is then closed.
    pub(super) fn mark_abuse(&self) {
        self.is_flooding.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Counts streams that the gateway reset because the client violated the protocol.
    pub(super) fn add_faulty_streams(&self, count: usize) {
        self.faulty.fetch_add(count, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Counts a stream that the client reset (`given_up`) or that was answered. Each answered stream compensates one
    /// reset.
    fn stream_ended(&self, given_up: bool) {
        if !given_up {
            let less = |wasted: usize| wasted.checked_sub(1);
            self.wasted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
        } else if self.wasted.fetch_add(1, Ordering::Relaxed) >= self.max_wasted {
            self.mark_abuse();
        }
    }

    /// Waits until the condition `is` holds. The condition is checked after each change.
    async fn wait_until(&self, is: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if is(self) {
                return;
            }
            changed.await;
        }
    }

    fn is_abused(&self) -> bool {
        self.is_flooding.load(Ordering::Relaxed)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Waits until no stream is open, and then for `within`. The caller drops the future when it accepts a stream, so
    /// that the wait starts again.
    async fn wait_idle(&self, within: Duration) {
        self.wait_until(|streams| streams.open() == 0).await;
        sleep(within).await;
    }
}

/// Guard of one open stream, with the reservation of its request head. A stream that is the only one of its connection
/// when it is opened has no reservation.
struct OpenStream(
    Arc<StreamCounts>,
    #[expect(dead_code, reason = "it counts until it is dropped")] Option<HeaderReservation>,
);

impl OpenStream {
    fn new(streams: &Arc<StreamCounts>, held: Option<HeaderReservation>) -> Self {
        streams.open.fetch_add(1, Ordering::Relaxed);
        Self(streams.clone(), held)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}

/// Serves the streams of a connection, each in its own task, until the connection is closed.
pub(super) async fn serve_connection(server: &Arc<PublicServer>, stream: Stream, mut stop: ShutdownWatch) {
    let limits = server.client_limits();
    let digest = Arc::new(connection_digest(&stream));
    let streams = Arc::new(StreamCounts::new(limits.h2_resets));
    let counted: Stream = Box::new(FloodGuardStream::new(stream, streams.clone(), limits.h2_frames));
    let handshake_result = timeout(limits.request_head, handshake(counted, Some(h2_options(&limits)))).await;
    let Ok(Ok(mut connection)) = handshake_result else { return };
    let (mut had_stream, mut stopping, mut idle) = (false, false, limits.keep_alive);
    let (bodies, mut read) = (Arc::new(ActiveBodyCounter::default()), 0);
    loop {
        let accepted = tokio::select! {
            biased;
            () = streams.wait_until(StreamCounts::is_abused) => {
                return end_abuse(server, &mut connection).await;
            }
            () = goaway_due(&mut stop, had_stream), if !stopping => {
                close_connection(&mut connection, &streams);
                stopping = true;
                continue;
            }
            () = streams.wait_until(|streams| streams.faulty.load(Ordering::Relaxed) > 0) => {
                record_faulty(server, &streams);
                continue;
            }
            () = bodies.wait_for_change(read) => {
                read = bodies.reading_count();
                connection.set_target_window_size(window_size(read));
                continue;
            }
            accepted = next_stream(&mut connection, &streams, limits.h2_streams as usize, &digest) => accepted,
            () = streams.wait_idle(idle) => {
                if stopping {
                    return;
                }
                // GOAWAY is sent before the connection is closed. Otherwise a request in transit would be lost, and
                // its client could not know whether the request was processed.
                close_connection(&mut connection, &streams);
                (stopping, idle) = (true, GOAWAY_GRACE);
                continue;
            }
        };
        match accepted {
            Ok(Some(H2Accept::Session(session))) => {
                had_stream = true;
                start_stream(server, session, &stop, &streams, &bodies);
            }
            // The library has answered the malformed request; it counts like a stream that the client reset.
            Ok(Some(H2Accept::Rejected)) => {
                server.app.metrics.count_refused_connection("h2_malformed");
                bad_request::record_malformed_request(server);
                streams.stream_ended(true);
            }
            Ok(None) | Err(_) => return record_faulty(server, &streams),
        }
    }
}

fn connection_digest(stream: &Stream) -> Digest {
    Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    }
}

/// Ends the connection of an abusive client.
async fn end_abuse(server: &PublicServer, connection: &mut h2::server::Connection<Stream, Bytes>) {
    server.app.metrics.count_refused_connection("h2_abuse");
    connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
    timeout(GOAWAY_GRACE, poll_fn(|cx| connection.poll_closed(cx))).await.ok();
}

/// Counts the streams that were reset because the client violated the protocol. The h2 library resets most of them
/// itself, without passing their requests to the gateway.
fn record_faulty(server: &PublicServer, streams: &StreamCounts) {
    let count = streams.faulty.swap(0, Ordering::Relaxed);
    (0..count).for_each(|_| server.app.metrics.count_refused_connection("h2_protocol_error"));
    if count > 0 {
        tracing::info!(name: "h2_streams_reset", count, why = "the client violated the protocol");
    }
}

/// Serves a stream in its own task, or refuses it if the budget has no memory for its head.
fn start_stream(
    server: &Arc<PublicServer>,
    mut session: HttpSession,
    stop: &ShutdownWatch,
    streams: &Arc<StreamCounts>,
    bodies: &Arc<ActiveBodyCounter>,
) {
    let Some(open) = server.admit_stream(&session, streams) else {
        server.app.metrics.count_refused_connection("heads");
        session.shutdown_with_reason(h2::Reason::REFUSED_STREAM);
        return;
    };
    let window = ActiveBodyGuard::new(bodies);
    tokio::spawn(serve_stream(server.clone(), session, stop.clone(), open, window));
}

/// Accepts the next stream; `None` at the end of the connection. While more than `max_open_streams` streams are open,
/// no further stream is accepted: the client has reset the excess streams, and their tasks have to end first. The other
/// streams continue meanwhile.
async fn next_stream(
    connection: &mut h2::server::Connection<Stream, Bytes>,
    streams: &StreamCounts,
    max_open_streams: usize,
    digest: &Arc<Digest>,
) -> pingora_error::Result<Option<H2Accept>> {
    tokio::select! {
        biased;
        () = streams.wait_until(|streams| streams.open() <= max_open_streams) => {}
        _ = poll_fn(|cx| connection.poll_closed(cx)) => return Ok(None),
    }
    HttpSession::from_h2_conn(connection, digest.clone()).await
}

impl PublicServer {
    /// Counts an accepted stream, and reserves memory for its request head unless it is the only open stream. Returns
    /// `None` if the budget for request heads is used up.
    fn admit_stream(&self, session: &HttpSession, streams: &Arc<StreamCounts>) -> Option<OpenStream> {
        if streams.open() == 0 {
            return Some(OpenStream::new(streams, None));
        }
        let live = self.app.config_snapshot();
        let weight = header_budget::header_cost(session.req_header(), live.settings.limits.head);
        let held =
            self.header_budget.try_reserve(weight, header_budget::header_budget_limit(&live.settings))?;
        Some(OpenStream::new(streams, Some(held)))
    }
}

/// Returns the receive window of a connection while `reading_bodies` bodies are being read: the bytes of bodies that
/// the client may send before the gateway reads them.
const fn window_size(reading_bodies: usize) -> u32 {
    let wider = if reading_bodies < WIDENED_BODIES { reading_bodies } else { WIDENED_BODIES };
    CONNECTION_WINDOW_BYTES + H2_STREAM_WINDOW_BYTES * wider as u32
}

/// Sends GOAWAY. Streams that the client opened before it received the frame are still served; after that the
/// connection ends with the last of them.
fn close_connection(connection: &mut h2::server::Connection<Stream, Bytes>, streams: &StreamCounts) {
    connection.graceful_shutdown();
    streams.going_away.store(true, Ordering::Relaxed);
}

/// Waits until GOAWAY is due: as soon as the gateway starts to drain, or after
/// [`DRAIN_IDLE_TIMEOUT`](super::DRAIN_IDLE_TIMEOUT) if the connection has had no stream yet. The first request of a
/// new connection may be in transit, and many clients report a failure if a new connection is closed.
async fn goaway_due(stop: &mut ShutdownWatch, had_stream: bool) {
    if had_stream { drain_started(stop).await } else { drain_grace(stop).await }
}

fn h2_options(limits: &LimitSettings) -> H2Options {
    let mut options = default_h2_options();
    options
        .initial_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME)
        .max_send_buffer_size(STREAM_SEND_BUFFER_BYTES)
        .data_frame_budget(DATA_FRAME_BUDGET_BYTES)
        .max_header_list_size(u32::try_from(limits.head.saturating_mul(2)).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.h2_streams)
        .max_local_error_reset_streams(Some(limits.h2_resets));
    options
}

/// Serves one stream until it ends.
async fn serve_stream(
    server: Arc<PublicServer>,
    mut session: HttpSession,
    stop: ShutdownWatch,
    open: OpenStream,
    body: ActiveBodyGuard,
) {
    if client_gave_up(&mut session).await {
        return open.0.stream_ended(true);
    }
    let counted = server.app.track_exchange();
    let refusal = malformed_request(&session, &server.client_limits());
    let link = DownstreamHttp2Stream::new(body, refusal);
    let mut session = ServerSession::new_http2(session);
    session.req_header_mut().extensions_mut().insert(RequestSource::Http2(link.clone()));
    let mut served = pin!(server.proxy.process_new_http(session, &stop));
    // A refused body may continue to arrive after the end of the exchange, which is then no longer in flight.
    tokio::select! {
        biased;
        _ = &mut served => {}
        () = link.wait_for_exchange_end() => {
            drop(counted);
            served.await;
        }
    }
    open.0.stream_ended(link.was_reset_by_client());
}

/// Returns the refusal of a stream whose head the library accepts and the gateway does not; `None` for a valid head.
fn malformed_request(session: &HttpSession, limits: &LimitSettings) -> Option<ApiError> {
    let head = session.req_header();
    let target = head.raw_path().len();
    // The h2 library accepts any scheme or none. The gateway accepts only these two, as in HTTP/1.1 request targets.
    let foreign = |scheme: &str| !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme));
    let no_host = |host: &[u8]| !penstock_http_wire::http1_request::is_host(host);
    let named = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let has_blank = |value: &http::HeaderValue| value.as_bytes().trim_ascii().len() < value.len();
    let fields = head.headers.get_all(http::header::HOST).iter().map(http::HeaderValue::as_bytes);
    let error = if named.into_iter().chain(fields).any(no_host) {
        HeadError::Malformed("its Host is not a host and port")
    } else if head.uri.scheme_str().is_some_and(foreign) {
        HeadError::Malformed("its scheme is not http or https")
    } else if head.headers.values().any(has_blank) {
        // RFC 9113 §8.2.1. Over HTTP/1.1, such blanks are not part of the value.
        HeadError::Malformed("a field has a value that begins or ends with a blank")
    } else if target > limits.target {
        HeadError::TargetTooLong
    } else if header_budget::header_list_size(head) > limits.head {
        // The limit of the library is twice as high, because the library refuses larger heads without a response.
        HeadError::TooLarge
    } else if head.headers.len() > limits.head_fields {
        HeadError::TooManyFields
    } else {
        return None;
    };
    Some(bad_request::head_refusal(error, limits))
}

/// Returns true if the client reset the stream.
async fn client_gave_up(session: &mut HttpSession) -> bool {
    let mut idle = session.idle();
    poll_fn(|cx| Poll::Ready(Pin::new(&mut idle).poll(cx).is_ready())).await
}
