//! An open exchange with a provider, whatever its connection speaks: the request
//! out, the answer in, and the connection back to where it came from.

use super::connect::ResolvedPeer;
use super::connection_pool::ConnectionPool;
use super::http1::{Http1Exchange, TransportError};
use super::idle_pool::ThreadPoolIndex;
use super::offer::RequestHead;
use super::send::{self, SendError};
use crate::net::read_budget;
use crate::storage::spool::SpooledData;
use crate::telemetry::TraceContext;
use crate::time::clock;

use bytes::Bytes;
use penstock_core::UpstreamRequest;
use pingora_core::protocols::http::client::HttpSession;
use pingora_error::ErrorType;
use pingora_http::RequestHeader;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Pooled connections that may turn out to be closed before a new one is made.
pub const MAX_STALE_RETRIES: usize = 3;
/// A connection that its provider has closed breaks within this: the first bytes are answered with a reset, a round
/// trip later, or two if they were lost. Who breaks it later may have worked on the request.
const RESET_WINDOW: Duration = Duration::from_secs(1);
/// Maximum time to read the rest of an answer in the background.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Pieces of it.
const MAX_DRAIN_READS: usize = 16;
/// Most heads with a status below 200 before the head of an answer.
const MAX_INFORMATIONAL: usize = 100;

/// An open exchange.
pub struct UpstreamExchange {
    /// True if the connection came from the pool: the provider may have closed it.
    pub reused: bool,
    /// All of the request went out. What follows half a request would be read as the rest of it.
    pub whole: bool,
    /// Time at which the connection was taken; the request follows at once.
    since: Instant,
    session: UpstreamSession,
    /// Thread that polls the socket.
    home: ThreadPoolIndex,
    peer: Arc<ResolvedPeer>,
    pool: Arc<ConnectionPool>,
}

/// Protocol session of the connection.
enum UpstreamSession {
    Http1(Http1Exchange),
    /// HTTP/2.
    Agreed(Box<HttpSession>),
}

impl UpstreamExchange {
    /// Over a connection that speaks HTTP/1.1.
    pub(super) fn http1(
        stream: pingora_core::protocols::Stream,
        reused: bool,
        home: ThreadPoolIndex,
        peer: Arc<ResolvedPeer>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = UpstreamSession::Http1(Http1Exchange::new(stream));
        Self { session, reused, home, whole: true, since: clock::cached_now(), peer, pool }
    }

    /// Over a stream of one that speaks HTTP/2.
    pub(super) fn with_session(
        session: HttpSession,
        reused: bool,
        peer: Arc<ResolvedPeer>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = UpstreamSession::Agreed(Box::new(session));
        Self {
            session,
            reused,
            home: ThreadPoolIndex::current(),
            whole: true,
            since: clock::cached_now(),
            peer,
            pool,
        }
    }

    /// Writes a call.
    ///
    /// # Errors
    /// Not all of it went out; a provider may answer early and stop reading.
    pub async fn send(
        &mut self,
        head: &RequestHead,
        call: &UpstreamRequest,
        upload: Option<&SpooledData>,
        trace: Option<&TraceContext>,
    ) -> Result<(), SendError> {
        let sent = match &mut self.session {
            UpstreamSession::Http1(http1) => {
                send::send_http1(http1.stream(), &head.wire, call, upload, trace).await
            }
            // Boxed: its state would be a part of every request's.
            UpstreamSession::Agreed(session) => {
                Box::pin(send::send_session(session, head.parsed.clone(), call, upload, trace)).await
            }
        };
        self.whole = sent.is_ok();
        sent
    }

    /// Writes a request that is no call, and reads the status of its answer.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn send_for_status(&mut self, head: RequestHeader, body: Bytes) -> Result<u16, TransportError> {
        self.whole = false;
        match &mut self.session {
            UpstreamSession::Http1(http1) => {
                let head = send::head_bytes(&head);
                http1.send_request(&head, &body).await.map_err(|_| TransportError::Gone)?;
            }
            UpstreamSession::Agreed(session) => {
                let mut left = body;
                let sent = async {
                    session.write_request_header(Box::new(head)).await?;
                    while !left.is_empty() {
                        let slice = left.split_to(left.len().min(send::BODY_SLICE));
                        session.write_request_body(slice, left.is_empty()).await?;
                    }
                    session.finish_request_body().await
                };
                sent.await.map_err(|_| TransportError::Gone)?;
            }
        }
        self.whole = true;
        self.read_head().await
    }

    /// Returns how often in all an attempt may repeat its request on another connection after this failure. The
    /// attempts are not counted, so that it is 0 unless the provider has done nothing for the request.
    pub fn stale_retries(&self, broken: TransportError) -> usize {
        let is_stream =
            matches!(&self.session, UpstreamSession::Agreed(session) if session.as_http2().is_some());
        let soon = clock::cached_now().saturating_duration_since(self.since) < RESET_WINDOW;
        match broken {
            _ if !self.reused => 0,
            // Its provider says so. Once: it may say so of every stream.
            TransportError::Unasked => 1,
            // Of HTTP/2 every stream but the first is on a connection that was there before: that says nothing.
            TransportError::Gone if !is_stream && soon && self.is_unanswered() => MAX_STALE_RETRIES,
            TransportError::Gone | TransportError::Malformed => 0,
        }
    }

    fn is_unanswered(&self) -> bool {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.is_unanswered(),
            // Half a head is not told apart here; it would have to come and break at once.
            UpstreamSession::Agreed(session) => session.response_header().is_none(),
        }
    }

    /// Sets the longest wait for the next bytes from now on.
    pub fn set_read_timeout(&mut self, patience: Duration) {
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.set_read_timeout(patience),
            UpstreamSession::Agreed(session) => session.set_read_timeout(Some(patience)),
        }
    }

    /// Reads the head of the answer; its status. Heads that only inform are passed over, 100 of them at most; they do
    /// not extend the time that the answer has.
    ///
    /// # Errors
    /// There is none.
    pub async fn read_head(&mut self) -> Result<u16, TransportError> {
        for _ in 0..=MAX_INFORMATIONAL {
            read_budget::consume_step().await;
            let status = match &mut self.session {
                UpstreamSession::Http1(http1) => http1.read_head().await?,
                UpstreamSession::Agreed(session) => {
                    session.read_response_header().await.map_err(|error| transport_error(&error))?;
                    session.response_header().map_or(0, |head| head.status.as_u16())
                }
            };
            if status >= 200 {
                return Ok(status);
            }
        }
        Err(TransportError::Malformed)
    }

    /// The status of the answer.
    pub fn status(&self) -> Option<u16> {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.status(),
            UpstreamSession::Agreed(session) => session.response_header().map(|head| head.status.as_u16()),
        }
    }

    /// A field of its head, in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.header(name),
            UpstreamSession::Agreed(session) => {
                session.response_header()?.headers.get(name).map(http::HeaderValue::as_bytes)
            }
        }
    }

    /// The next bytes of the answer, `None` at its end. Ends the turn of its task when that has read enough.
    ///
    /// # Errors
    /// It was cut.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, TransportError> {
        read_budget::consume_step().await;
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.read_body().await,
            UpstreamSession::Agreed(session) => {
                let piece = session.read_response_body().await.map_err(|_| TransportError::Gone)?;
                read_budget::charge_bytes(piece.as_ref().map_or(0, Bytes::len));
                Ok(piece)
            }
        }
    }

    fn is_complete(&mut self) -> bool {
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.is_complete(),
            UpstreamSession::Agreed(session) => session.response_done(),
        }
    }

    /// Hands the connection back after a whole answer.
    pub async fn release(self) {
        if !self.whole {
            return;
        }
        match self.session {
            UpstreamSession::Http1(http1) => {
                if let Some(stream) = http1.into_stream() {
                    self.pool.put(&self.peer, stream, self.home);
                }
            }
            UpstreamSession::Agreed(session) => self.pool.put_session(&self.peer, *session),
        }
    }

    /// Reads what is left of an answer that the client already has, so that the
    /// connection can serve again.
    pub fn release_soon(mut self) {
        tokio::spawn(async move {
            let over = timeout(DRAIN_TIMEOUT, async {
                for _ in 0..MAX_DRAIN_READS {
                    if self.is_complete() || self.read_body().await?.is_none() {
                        return Ok(true);
                    }
                }
                Ok::<_, TransportError>(false)
            });
            if matches!(over.await, Ok(Ok(true))) {
                self.release().await;
            }
        });
    }
}

/// Classifies an answer without a head.
fn transport_error(error: &pingora_error::Error) -> TransportError {
    let stream = error.root_cause().downcast_ref::<h2::Error>();
    match error.etype() {
        ErrorType::InvalidHTTPHeader => TransportError::Malformed,
        _ if stream.is_some_and(is_unprocessed) => TransportError::Unasked,
        _ => TransportError::Gone,
    }
}

/// Returns true if the stream was refused, or the provider went away before it processed the stream: h2 reports only
/// the streams above the last one that the provider processed (RFC 9113 §6.8, §8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    let reason = error.reason();
    let refused = error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM);
    let left = error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (refused || left)
}
