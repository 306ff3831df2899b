//! Who asks and hears the answer: a client over its connection, or a line of a
//! batch, which has its body already and keeps its answer. One exchange serves both.

use crate::ledger::Ending;
use bytes::Bytes;
use http::header::AsHeaderName;
use http::{HeaderValue, Request};
use pingora_core::protocols::http::ServerSession;
use pingora_error::Result;
use pingora_http::{RequestHeader, ResponseHeader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use tokio::sync::Notify;

/// The caller of an exchange.
pub enum Caller<'a> {
    /// A client.
    Connection(&'a mut ServerSession),
    /// A line of a batch.
    Line(&'a mut Line),
}

/// A line of a batch: no socket, and no headers either way.
#[derive(Default)]
pub struct Line {
    body: Option<Bytes>,
    begun: bool,
    sent: Vec<Bytes>,
    cancel: CancelLine,
    asked_back: CancelLine,
    /// How its reserve ends; entered with its answer.
    pub end: Option<Ending>,
}

/// Tells once, to everybody who holds it, that their work is to end.
#[derive(Clone, Debug, Default)]
pub struct CancelLine(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    so: AtomicBool,
    told: Notify,
}

impl CancelLine {
    /// Tells.
    pub fn cancel(&self) {
        self.0.so.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    /// Whether it was told.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.so.load(Ordering::Acquire)
    }

    /// Ends when it is told.
    pub async fn cancelled(&self) {
        let told = self.0.told.notified();
        tokio::pin!(told);
        told.as_mut().enable();
        if !self.is_cancelled() {
            told.await;
        }
    }
}

/// What a line has instead of a request head.
static NO_HEAD: LazyLock<RequestHeader> = LazyLock::new(|| Request::new(()).into_parts().0.into());

impl Line {
    /// A line with this body, until `cancel` is told.
    #[must_use]
    pub fn new(body: Bytes, cancel: CancelLine) -> Self {
        Self { body: Some(body).filter(|body| !body.is_empty()), cancel, ..Self::default() }
    }

    /// Its batch wants no more of it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Its seat was needed by a request at once.
    #[must_use]
    pub fn was_asked_back(&self) -> bool {
        self.asked_back.is_cancelled()
    }

    /// Takes more of its answer.
    pub fn take(&mut self, pieces: Vec<Bytes>) {
        self.sent.extend(pieces);
    }

    /// Its answer.
    #[must_use]
    pub fn answer(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.sent)
    }
}

/// As of a session; a line reads its body in one piece and can always be written to.
impl Caller<'_> {
    /// The head of the request; a line's says nothing.
    #[must_use]
    pub fn req_header(&self) -> &RequestHeader {
        match self {
            Self::Connection(session) => session.req_header(),
            Self::Line(_) => &NO_HEAD,
        }
    }

    /// A header of the request.
    #[must_use]
    pub fn get_header(&self, name: impl AsHeaderName) -> Option<&HeaderValue> {
        match self {
            Self::Connection(session) => session.get_header(name),
            Self::Line(_) => None,
        }
    }

    /// The same as bytes, none for a header that is not there.
    #[must_use]
    pub fn get_header_bytes(&self, name: impl AsHeaderName) -> &[u8] {
        match self {
            Self::Connection(session) => session.get_header_bytes(name),
            Self::Line(_) => b"",
        }
    }

    /// Whether it came over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Connection(session) => session.digest().is_some_and(|digest| digest.ssl_digest.is_some()),
            Self::Line(_) => false,
        }
    }

    /// The next piece of the request's body, `None` at its end.
    ///
    /// # Errors
    /// It was cut short.
    pub async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Connection(session) => session.read_request_body().await,
            Self::Line(line) => Ok(line.body.take()),
        }
    }

    /// Whether the body was read to its end.
    pub fn is_body_done(&mut self) -> bool {
        match self {
            Self::Connection(session) => session.is_body_done(),
            Self::Line(_) => true,
        }
    }

    /// Ends only when the caller is gone, or sends what it may not.
    pub async fn gone(&mut self) {
        match self {
            Self::Connection(session) => {
                session.read_body_or_idle(true).await.ok();
            }
            Self::Line(line) => tokio::select! {
                biased;
                () = line.cancel.cancelled() => {}
                () = line.asked_back.cancelled() => {}
            },
        }
    }

    /// The signal that asks a line to leave its seat.
    #[must_use]
    pub fn asked_back(&self) -> Option<CancelLine> {
        match self {
            Self::Connection(_) => None,
            Self::Line(line) => Some(line.asked_back.clone()),
        }
    }

    /// Tells a client that waits for it to send its body.
    pub async fn write_continue_response(&mut self) {
        if let Self::Connection(session) = self {
            session.write_continue_response().await.ok();
        }
    }

    /// Seconds to keep the connection for another request; `None` closes it.
    pub fn set_keepalive(&mut self, keep: Option<u64>) {
        if let Self::Connection(session) = self {
            session.set_keepalive(keep);
        }
    }

    /// Whether the answer is sent in chunks where its length is not told.
    #[must_use]
    pub fn in_chunks(&self) -> bool {
        match self {
            Self::Connection(session) => !session.is_http2(),
            Self::Line(_) => false,
        }
    }

    /// Sends the head of the answer.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_header(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        match self {
            Self::Connection(session) => session.write_response_header(head).await,
            Self::Line(line) => {
                line.begun = true;
                Ok(())
            }
        }
    }

    /// Sends some of its body.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        match self {
            Self::Connection(session) => session.write_response_body(piece, end).await,
            Self::Line(line) => {
                line.take(vec![piece]);
                Ok(())
            }
        }
    }

    /// Whether the head of the answer has gone out.
    #[must_use]
    pub fn answered(&self) -> bool {
        match self {
            Self::Connection(session) => {
                session.response_written().is_some_and(|head| !head.status.is_informational())
            }
            Self::Line(line) => line.begun,
        }
    }

    /// Size of the answer's body so far.
    #[must_use]
    pub fn body_bytes_sent(&self) -> usize {
        match self {
            Self::Connection(session) => session.body_bytes_sent(),
            Self::Line(line) => line.sent.iter().map(Bytes::len).sum(),
        }
    }
}
