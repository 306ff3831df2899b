//! Exchange with a provider over HTTP/1.1 or HTTP/2: sends the request, reads the answer, and returns the connection to
//! its pool.

use super::connect::ResolvedPeer;
use super::connection_pool::ConnectionPool;
use super::http1::{Http1Exchange, TransportError};
use super::idle_pool::LocalPoolId;
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

/// Time within which a failure can mean that the provider had already closed the connection. Such a provider answers
/// the first bytes with a reset after one round trip, or after two if the bytes were lost. After a later failure, the
/// provider may have processed the request.
const RESET_WINDOW: Duration = Duration::from_secs(1);
/// Maximum time to read the rest of an answer in the background.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of reads of the rest of an answer.
const MAX_DRAIN_READS: usize = 16;
/// Maximum number of informational heads (status below 200) before the head of an answer.
const MAX_INFORMATIONAL: usize = 100;

/// Open exchange with a provider.
pub struct UpstreamExchange {
    /// True if the connection came from the pool, so that the provider may already have closed it.
    pub reused: bool,
    /// False if a request was sent only in part. The connection then cannot be reused, because the provider would read
    /// the next request as the rest of this one.
    pub is_request_complete: bool,
    /// Time at which the connection was taken from the pool or opened; the request is sent immediately after that.
    since: Instant,
    session: UpstreamSession,
    /// Pool of the thread that polls the socket.
    owner: LocalPoolId,
    peer: Arc<ResolvedPeer>,
    pool: Arc<ConnectionPool>,
}

/// Protocol session of the connection.
enum UpstreamSession {
    Http1(Http1Exchange),
    /// Session over HTTP/2.
    Http2(Box<HttpSession>),
}

impl UpstreamExchange {
    /// Creates an exchange over an HTTP/1.1 connection.
    pub(super) fn from_http1_stream(
        stream: pingora_core::protocols::Stream,
        reused: bool,
        owner: LocalPoolId,
        peer: Arc<ResolvedPeer>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = UpstreamSession::Http1(Http1Exchange::new(stream));
        Self { session, reused, owner, is_request_complete: true, since: clock::cached_now(), peer, pool }
    }

    /// Creates an exchange over a stream of an HTTP/2 connection.
    pub(super) fn from_http2_session(
        session: HttpSession,
        reused: bool,
        peer: Arc<ResolvedPeer>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = UpstreamSession::Http2(Box::new(session));
        Self {
            session,
            reused,
            owner: LocalPoolId::of_current_thread(),
            is_request_complete: true,
            since: clock::cached_now(),
            peer,
            pool,
        }
    }

    /// Sends a request to the provider.
    ///
    /// # Errors
    /// Returns an error if the call was not sent completely, for instance because the provider answers early and stops
    /// reading.
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
            // The future is boxed, because its state would enlarge the future of every request.
            UpstreamSession::Http2(session) => {
                Box::pin(send::send_http2(session, head.parsed.clone(), call, upload, trace)).await
            }
        };
        self.is_request_complete = sent.is_ok();
        sent
    }

    /// Sends an auxiliary request, such as a health check, and reads the status of its answer.
    ///
    /// # Errors
    /// Returns an error if there is no answer.
    pub async fn send_for_status(&mut self, head: RequestHeader, body: Bytes) -> Result<u16, TransportError> {
        self.is_request_complete = false;
        match &mut self.session {
            UpstreamSession::Http1(http1) => {
                let head = send::encode_head(&head);
                http1.send_request(&head, &body).await.map_err(|_| TransportError::Gone)?;
            }
            UpstreamSession::Http2(session) => {
                let mut left = body;
                let sent = async {
                    session.write_request_header(Box::new(head)).await?;
                    while !left.is_empty() {
                        let slice = left.split_to(left.len().min(send::BODY_SLICE_BYTES));
                        session.write_request_body(slice, left.is_empty()).await?;
                    }
                    session.finish_request_body().await
                };
                sent.await.map_err(|_| TransportError::Gone)?;
            }
        }
        self.is_request_complete = true;
        self.read_head().await
    }

    /// Returns true if an attempt may send its request once more on another connection after this failure, because the
    /// provider has not processed it. Such a retry does not count as an attempt.
    pub fn allows_resend(&self, broken: TransportError) -> bool {
        let is_stream =
            matches!(&self.session, UpstreamSession::Http2(session) if session.as_http2().is_some());
        let is_early = clock::cached_now().saturating_duration_since(self.since) < RESET_WINDOW;
        match broken {
            _ if !self.reused => false,
            // The provider reported that it did not process the request. Only one retry is allowed, because the
            // provider may refuse every stream.
            TransportError::NotProcessed => true,
            // HTTP/2 is excluded, because there every stream except the first is on a reused connection.
            TransportError::Gone => !is_stream && is_early && self.is_unanswered(),
            TransportError::Malformed => false,
        }
    }

    fn is_unanswered(&self) -> bool {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.is_unanswered(),
            // A partially received head is not detected here. This is acceptable, because the connection would have
            // to fail immediately after the first part of the head.
            UpstreamSession::Http2(session) => session.response_header().is_none(),
        }
    }

    /// Sets the read timeout.
    pub fn set_read_timeout(&mut self, read_timeout: Duration) {
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.set_read_timeout(read_timeout),
            UpstreamSession::Http2(session) => session.set_read_timeout(Some(read_timeout)),
        }
    }

    /// Reads the head of the answer and returns its status. Up to 100 informational heads are skipped; they do not
    /// extend the deadline of the answer.
    ///
    /// # Errors
    /// Returns an error if there is no head.
    pub async fn read_head(&mut self) -> Result<u16, TransportError> {
        for _ in 0..=MAX_INFORMATIONAL {
            read_budget::consume_budget_unit().await;
            let status = match &mut self.session {
                UpstreamSession::Http1(http1) => http1.read_head().await?,
                UpstreamSession::Http2(session) => {
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

    /// Returns the status of the answer; `None` before its head has arrived.
    pub fn status(&self) -> Option<u16> {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.status(),
            UpstreamSession::Http2(session) => session.response_header().map(|head| head.status.as_u16()),
        }
    }

    /// Returns the value of a header of the answer; `None` if it has no such header, and before its head has arrived.
    /// `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        match &self.session {
            UpstreamSession::Http1(http1) => http1.header(name),
            UpstreamSession::Http2(session) => {
                session.response_header()?.headers.get(name).map(http::HeaderValue::as_bytes)
            }
        }
    }

    /// Reads the next bytes of the body; `None` at its end. Yields if the task has used up its read budget.
    ///
    /// # Errors
    /// Returns an error if the body is truncated.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, TransportError> {
        read_budget::consume_budget_unit().await;
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.read_body().await,
            UpstreamSession::Http2(session) => {
                let piece = session.read_response_body().await.map_err(|_| TransportError::Gone)?;
                read_budget::charge_bytes(piece.as_ref().map_or(0, Bytes::len));
                Ok(piece)
            }
        }
    }

    fn is_complete(&mut self) -> bool {
        match &mut self.session {
            UpstreamSession::Http1(http1) => http1.is_complete(),
            UpstreamSession::Http2(session) => session.response_done(),
        }
    }

    /// Returns the connection to its pool after a complete answer.
    pub async fn return_to_pool(self) {
        if !self.is_request_complete {
            return;
        }
        match self.session {
            UpstreamSession::Http1(http1) => {
                if let Some(stream) = http1.into_reusable_stream() {
                    self.pool.put_idle(&self.peer, stream, self.owner);
                }
            }
            UpstreamSession::Http2(session) => self.pool.release_h2(&self.peer, *session),
        }
    }

    /// Reads the rest of an answer in the background, after the client has its response, so that the connection can be
    /// reused.
    pub fn drain_in_background(mut self) {
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
                self.return_to_pool().await;
            }
        });
    }
}

/// Classifies the error of an exchange whose answer has no head.
fn transport_error(error: &pingora_error::Error) -> TransportError {
    let stream = error.root_cause().downcast_ref::<h2::Error>();
    match error.etype() {
        ErrorType::InvalidHTTPHeader => TransportError::Malformed,
        _ if stream.is_some_and(is_unprocessed) => TransportError::NotProcessed,
        _ => TransportError::Gone,
    }
}

/// Returns true if the stream was refused, or the provider sent GOAWAY before it processed the stream: h2 reports
/// GOAWAY only for streams above the last one that the provider processed (RFC 9113 §6.8, §8.7).
fn is_unprocessed(error: &h2::Error) -> bool {
    let reason = error.reason();
    let refused = error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM);
    let left = error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (refused || left)
}
