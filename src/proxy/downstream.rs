//! The caller of an exchange: a client over its connection, or a line of a batch, which has its body already and keeps
//! its response. Pingora's session reads and writes for both.

mod batch_line;
#[cfg(test)]
mod tests;

pub use batch_line::{LineDownstream, LineReport};
use tokio_util::sync::CancellationToken;

use crate::net::read_budget;
use crate::proxy::RequestOrigin;
use crate::proxy::failover::Part;
use crate::proxy::response::head::ResponseHead;
use bytes::{Bytes, BytesMut};
use http::header::AsHeaderName;
use http::{HeaderValue, Method, Version, header};
use penstock_core::FinishReason;
use pingora_core::protocols::http::ServerSession;
use pingora_error::{Error as SessionError, ErrorType};
use pingora_http::ResponseHeader;
use std::future::{Future, pending, poll_fn};
use std::io::{Error, ErrorKind, Result};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Bytes of a body that nobody wanted, which are read so that the connection can serve another request.
const DISCARDED: usize = 16 << 10;

/// The session of an exchange, and where it came from.
pub struct Downstream<'a> {
    session: &'a mut ServerSession,
    origin: Option<RequestOrigin>,
    /// Response head that leaves with the first bytes of its body.
    head: Option<Box<ResponseHeader>>,
}

impl<'a> Downstream<'a> {
    /// The caller of a session; an administrator's has no origin.
    pub const fn new(session: &'a mut ServerSession, origin: Option<RequestOrigin>) -> Self {
        Self { session, origin, head: None }
    }
}

impl Downstream<'_> {
    /// The line of a batch, or the choice of a request for several.
    #[must_use]
    pub fn line(&self) -> Option<&Arc<LineDownstream>> {
        self.origin.as_ref().and_then(RequestOrigin::line)
    }

    /// The method of the request.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.session.req_header().method
    }

    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        match self.session.req_header().uri.path() {
            "" => "/",
            path => path,
        }
    }

    /// The query of the target, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.session.req_header().uri.query()
    }

    /// The host that was asked, and perhaps the port.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let head = self.session.req_header();
        let asked = head.uri.authority().map(http::uri::Authority::as_str);
        asked.or_else(|| head.headers.get(header::HOST)?.to_str().ok())
    }

    /// The first header field of this name, in lower case.
    #[must_use]
    pub fn field(&self, name: impl AsHeaderName) -> Option<&[u8]> {
        self.session.req_header().headers.get(name).map(HeaderValue::as_bytes)
    }

    /// Returns true for a request over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.session.digest().is_some_and(|digest| digest.ssl_digest.is_some())
    }

    /// Returns true unless the client or the process wants no other request on the connection.
    #[must_use]
    pub fn may_keep(&self) -> bool {
        self.session.as_http1().is_none_or(|_| self.session.get_keepalive().is_some())
    }

    /// The next piece of the request's body, `None` at its end. Ends the turn of its task when that has read enough.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] for unsound chunks, else the body was cut short.
    pub async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            read_budget::consume_step().await;
            let piece = self.session.read_request_body().await.map_err(failed)?;
            read_budget::charge_bytes(piece.as_ref().map_or(0, Bytes::len));
            // The end of a chunked body may come with an empty piece before it.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                return Ok(piece);
            }
        }
    }

    /// Appends more of it to `body`; returns how many bytes, 0 at its end.
    ///
    /// # Errors
    /// As [`Caller::read_request_body`].
    pub async fn read_into(&mut self, body: &mut BytesMut) -> Result<usize> {
        let piece = self.read_request_body().await?.unwrap_or_default();
        body.extend_from_slice(&piece);
        Ok(piece.len())
    }

    /// Returns true if the body was read to its end.
    pub fn is_body_done(&mut self) -> bool {
        self.session.is_body_done()
    }

    /// Notes whether a long body is read: the window of its HTTP/2 connection makes room for it.
    pub fn reads(&mut self, read: bool) {
        if let Some(RequestOrigin::Http2(stream)) = &self.origin {
            stream.set_reading(read);
        }
    }

    /// Bounds how long a client may leave what is written from now on waiting. Sockets of HTTP/1.1 bound it themselves.
    pub fn hurry(&mut self, within: Duration) {
        if self.session.is_http2() {
            self.session.set_write_timeout(Some(within));
        }
    }

    /// Ends only when the caller is gone.
    pub async fn gone(&mut self) {
        // A body that is still to be read is not looked behind.
        if !self.session.is_body_done() && !self.session.is_http2() {
            return pending().await;
        }
        self.session.read_body_or_idle(true).await.ok();
    }

    /// The signal that asks a line to give its permit to a request at once.
    #[must_use]
    pub fn asked_back(&self) -> Option<CancellationToken> {
        self.line().and_then(|line| line.asked_back())
    }

    /// Tells a client that waits for it to send its body. HTTP/1.0 has no interim responses (RFC 9110 §10.1.1).
    pub async fn write_continue_response(&mut self) {
        let version = self.session.req_header().version;
        if self.session.as_http1().is_some() && version != Version::HTTP_10 {
            self.session.write_continue_response().await.ok();
        }
    }

    /// Notes whether the connection may serve another request.
    pub fn keep(&mut self, keep: bool) {
        self.session.set_keepalive(keep.then_some(0));
    }

    /// Returns true where a response without a length is sent in chunks.
    #[must_use]
    pub fn in_chunks(&self) -> bool {
        self.session.as_http1().is_some() && self.session.req_header().version != Version::HTTP_10
    }

    /// Takes the head of the response. It leaves with what is written next, or with [`Caller::flush`].
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_header(&mut self, head: ResponseHead) -> Result<()> {
        let last = match &self.origin {
            Some(RequestOrigin::Http1(connection)) => connection.is_stopping(),
            _ => false,
        };
        self.discard_body().await;
        let head = head.into_response();
        // A body that ends with the connection is the last on it.
        let unframed = self.session.as_http1().is_some()
            && !head.headers.contains_key(header::CONTENT_LENGTH)
            && !head.headers.contains_key(header::TRANSFER_ENCODING)
            && !matches!(head.status.as_u16(), 204 | 304);
        if last || unframed {
            self.session.set_keepalive(None);
        }
        self.head = Some(head);
        Ok(())
    }

    /// Reads and drops a short body that nobody wanted, as far as it has arrived: behind an unread one no other request
    /// can be served.
    async fn discard_body(&mut self) {
        let length = self.session.get_header_bytes(header::CONTENT_LENGTH);
        let length = std::str::from_utf8(length).ok().and_then(|length| length.parse::<usize>().ok());
        if self.session.as_http1().is_none() || length.is_none_or(|length| length > DISCARDED) {
            return;
        }
        while !self.session.is_body_done() {
            let mut read = pin!(self.session.read_request_body());
            let read = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
            if !matches!(read, Poll::Ready(Ok(Some(_)))) {
                return;
            }
        }
    }

    /// Sends the head, if that has not left.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn flush(&mut self) -> Result<()> {
        match self.head.take() {
            Some(head) => self.session.write_response_header(head).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Sends some of the body; `end` with its last bytes, which may be none.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        if self.head.is_some() {
            self.cork(!piece.is_empty() || end);
            let written = self.flush().await;
            self.cork(false);
            written?;
        }
        self.session.write_response_body(piece, end).await.map_err(failed)
    }

    /// Sends a short body at once.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_response_whole(&mut self, pieces: &[Bytes]) -> Result<()> {
        match pieces {
            [piece] => self.write_response_body(piece.clone(), true).await,
            pieces => self.write_response_body(pieces.concat().into(), true).await,
        }
    }

    /// Keeps back what an HTTP/1.1 session flushes.
    fn cork(&self, corked: bool) {
        if let Some(RequestOrigin::Http1(connection)) = &self.origin {
            connection.cork(corked);
        }
    }

    /// Keeps what one choice used for the request that wants several; gives it back where there is none.
    pub(crate) fn keep_part(&mut self, part: Part) -> std::result::Result<(), Part> {
        match self.line() {
            Some(line) => line.keep_part(part),
            None => Err(part),
        }
    }

    /// Notes which provider sends the first content of a choice, and at which attempt.
    pub(crate) fn note_provider(&mut self, provider: &str, number: u32) {
        if let Some(line) = self.line() {
            line.note_provider(provider, number);
        }
    }

    /// Notes why a choice ended.
    pub(crate) fn note_finish(&mut self, finish: Option<FinishReason>) {
        if let Some(line) = self.line() {
            line.note_finish(finish);
        }
    }

    /// Returns true once there is a response head, sent or not.
    #[must_use]
    pub fn answered(&self) -> bool {
        let written = self.session.response_written();
        self.head.is_some() || written.is_some_and(|head| !head.status.is_informational())
    }

    /// Bytes of the response body so far.
    #[must_use]
    pub fn body_bytes_sent(&self) -> usize {
        self.session.body_bytes_sent()
    }
}

/// The error of a session as one of input and output.
#[allow(clippy::boxed_local)]
fn failed(error: Box<SessionError>) -> Error {
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => ErrorKind::TimedOut.into(),
        ErrorType::Custom("InvalidChunk") => ErrorKind::InvalidData.into(),
        _ => match error.root_cause().downcast_ref::<Error>().map(Error::kind) {
            Some(kind @ (ErrorKind::InvalidData | ErrorKind::TimedOut)) => kind.into(),
            _ => ErrorKind::BrokenPipe.into(),
        },
    }
}
