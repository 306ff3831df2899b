//! An open exchange with a provider, whatever its connection speaks: the request
//! out, the answer in, and the connection back to where it came from.

use super::connect::Door;
use super::connection_pool::ConnectionPool;
use super::http1::{Broken, Http1};
use super::idle_pool::Home;
use super::offer::RequestHead;
use super::send::{self, Unsent};
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
pub const STALE: usize = 3;
/// A connection that its provider has closed breaks within this: the first bytes are answered with a reset, a round
/// trip later, or two if they were lost. Who breaks it later may have worked on the request.
const SOON: Duration = Duration::from_secs(1);
/// Maximum time to read the rest of an answer in the background.
const REST: Duration = Duration::from_secs(1);
/// Pieces of it.
const PIECES: usize = 16;
/// Most heads with a status below 200 before the head of an answer.
const INFORMATIONAL: usize = 100;

/// An open exchange.
pub struct Way {
    /// True if the connection came from the pool: the provider may have closed it.
    pub reused: bool,
    /// All of the request went out. What follows half a request would be read as the rest of it.
    pub whole: bool,
    /// Time at which the connection was taken; the request follows at once.
    since: Instant,
    session: Session,
    /// Thread that polls the socket.
    home: Home,
    door: Arc<Door>,
    pool: Arc<ConnectionPool>,
}

/// Protocol session of the connection.
enum Session {
    Http1(Http1),
    /// HTTP/2.
    Agreed(Box<HttpSession>),
}

impl Way {
    /// Over a connection that speaks HTTP/1.1.
    pub(super) fn http1(
        stream: pingora_core::protocols::Stream,
        reused: bool,
        home: Home,
        door: Arc<Door>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = Session::Http1(Http1::new(stream));
        Self { session, reused, home, whole: true, since: clock::cached_now(), door, pool }
    }

    /// Over a stream of one that speaks HTTP/2.
    pub(super) fn agreed(
        session: HttpSession,
        reused: bool,
        door: Arc<Door>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        let session = Session::Agreed(Box::new(session));
        Self { session, reused, home: Home::here(), whole: true, since: clock::cached_now(), door, pool }
    }

    /// Writes a call.
    ///
    /// # Errors
    /// Not all of it went out; a provider may answer early and stop reading.
    pub async fn call(
        &mut self,
        head: &RequestHead,
        call: &UpstreamRequest,
        upload: Option<&SpooledData>,
        trace: Option<&TraceContext>,
    ) -> Result<(), Unsent> {
        let sent = match &mut self.session {
            Session::Http1(http1) => send::stream(http1.stream(), &head.wire, call, upload, trace).await,
            // Boxed: its state would be a part of every request's.
            Session::Agreed(session) => {
                Box::pin(send::session(session, head.parsed.clone(), call, upload, trace)).await
            }
        };
        self.whole = sent.is_ok();
        sent
    }

    /// Writes a request that is no call, and reads the status of its answer.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn ask(&mut self, head: RequestHeader, body: Bytes) -> Result<u16, Broken> {
        self.whole = false;
        match &mut self.session {
            Session::Http1(http1) => {
                let head = send::wire(&head);
                http1.ask(&head, &body).await.map_err(|_| Broken::Gone)?;
            }
            Session::Agreed(session) => {
                let mut left = body;
                let sent = async {
                    session.write_request_header(Box::new(head)).await?;
                    while !left.is_empty() {
                        let slice = left.split_to(left.len().min(send::SLICE));
                        session.write_request_body(slice, left.is_empty()).await?;
                    }
                    session.finish_request_body().await
                };
                sent.await.map_err(|_| Broken::Gone)?;
            }
        }
        self.whole = true;
        self.read_head().await
    }

    /// Returns how often in all an attempt may repeat its request on another connection after this failure. The
    /// attempts are not counted, so that it is 0 unless the provider has done nothing for the request.
    pub fn again(&self, broken: Broken) -> usize {
        let is_stream = matches!(&self.session, Session::Agreed(session) if session.as_http2().is_some());
        let soon = clock::cached_now().saturating_duration_since(self.since) < SOON;
        match broken {
            _ if !self.reused => 0,
            // Its provider says so. Once: it may say so of every stream.
            Broken::Unasked => 1,
            // Of HTTP/2 every stream but the first is on a connection that was there before: that says nothing.
            Broken::Gone if !is_stream && soon && self.is_untouched() => STALE,
            Broken::Gone | Broken::Malformed => 0,
        }
    }

    fn is_untouched(&self) -> bool {
        match &self.session {
            Session::Http1(http1) => http1.is_untouched(),
            // Half a head is not told apart here; it would have to come and break at once.
            Session::Agreed(session) => session.response_header().is_none(),
        }
    }

    /// Sets the longest wait for the next bytes from now on.
    pub fn wait(&mut self, patience: Duration) {
        match &mut self.session {
            Session::Http1(http1) => http1.wait(patience),
            Session::Agreed(session) => session.set_read_timeout(Some(patience)),
        }
    }

    /// Reads the head of the answer; its status. Heads that only inform are passed over, 100 of them at most; they do
    /// not extend the time that the answer has.
    ///
    /// # Errors
    /// There is none.
    pub async fn read_head(&mut self) -> Result<u16, Broken> {
        for _ in 0..=INFORMATIONAL {
            read_budget::consume_step().await;
            let status = match &mut self.session {
                Session::Http1(http1) => http1.read_head().await?,
                Session::Agreed(session) => {
                    session.read_response_header().await.map_err(|error| broken(&error))?;
                    session.response_header().map_or(0, |head| head.status.as_u16())
                }
            };
            if status >= 200 {
                return Ok(status);
            }
        }
        Err(Broken::Malformed)
    }

    /// The status of the answer.
    pub fn status(&self) -> Option<u16> {
        match &self.session {
            Session::Http1(http1) => http1.status(),
            Session::Agreed(session) => session.response_header().map(|head| head.status.as_u16()),
        }
    }

    /// A field of its head, in lower case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        match &self.session {
            Session::Http1(http1) => http1.field(name),
            Session::Agreed(session) => {
                session.response_header()?.headers.get(name).map(http::HeaderValue::as_bytes)
            }
        }
    }

    /// The next bytes of the answer, `None` at its end. Ends the turn of its task when that has read enough.
    ///
    /// # Errors
    /// It was cut.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>, Broken> {
        read_budget::consume_step().await;
        match &mut self.session {
            Session::Http1(http1) => http1.read_body().await,
            Session::Agreed(session) => {
                let piece = session.read_response_body().await.map_err(|_| Broken::Gone)?;
                read_budget::charge_bytes(piece.as_ref().map_or(0, Bytes::len));
                Ok(piece)
            }
        }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.session {
            Session::Http1(http1) => http1.is_over(),
            Session::Agreed(session) => session.response_done(),
        }
    }

    /// Hands the connection back after a whole answer.
    pub async fn release(self) {
        if !self.whole {
            return;
        }
        match self.session {
            Session::Http1(http1) => {
                if let Some(stream) = http1.into_stream() {
                    self.pool.put(&self.door, stream, self.home);
                }
            }
            Session::Agreed(session) => self.pool.put_session(&self.door, *session),
        }
    }

    /// Reads what is left of an answer that the client already has, so that the
    /// connection can serve again.
    pub fn release_soon(mut self) {
        tokio::spawn(async move {
            let over = timeout(REST, async {
                for _ in 0..PIECES {
                    if self.is_over() || self.read_body().await?.is_none() {
                        return Ok(true);
                    }
                }
                Ok::<_, Broken>(false)
            });
            if matches!(over.await, Ok(Ok(true))) {
                self.release().await;
            }
        });
    }
}

/// Classifies an answer without a head.
fn broken(error: &pingora_error::Error) -> Broken {
    let stream = error.root_cause().downcast_ref::<h2::Error>();
    match error.etype() {
        ErrorType::InvalidHTTPHeader => Broken::Malformed,
        _ if stream.is_some_and(is_unasked) => Broken::Unasked,
        _ => Broken::Gone,
    }
}

/// Returns true if the stream was refused, or the provider went away before it processed the stream: h2 reports only
/// the streams above the last one that the provider processed (RFC 9113 §6.8, §8.7).
fn is_unasked(error: &h2::Error) -> bool {
    let reason = error.reason();
    let refused = error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM);
    let left = error.is_go_away() && reason == Some(h2::Reason::NO_ERROR);
    error.is_remote() && (refused || left)
}
