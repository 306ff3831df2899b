//! Downstream side of an exchange: a client on its connection, or a batch line, whose body is already known and whose
//! response is stored. Pingora's session reads and writes for both.

mod batch_line;
mod first_write;
#[cfg(test)]
mod tests;
mod trailers;

pub(crate) use batch_line::FirstContent;
pub use batch_line::{LineDownstream, LineReport};
pub(crate) use first_write::FirstWriteOutcome;
use tokio_util::sync::CancellationToken;

use crate::net::read_budget;
use crate::proxy::RequestSource;
use crate::proxy::failover::ChoiceUsage;
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

/// Maximum size in bytes of an unread request body that is discarded so that the connection can serve another request.
const MAX_DISCARDED_BODY: usize = 16 << 10;
/// Divisor of the number of bytes that a direct read charges to the read budget, so that a poll reads about 512 KiB.
const DIRECT_READ_DIVISOR: usize = 16;

/// Session of an exchange, and the source of its request.
pub struct Downstream<'a> {
    session: &'a mut ServerSession,
    source: Option<RequestSource>,
    /// Response head, sent together with the first bytes of its body.
    head: Option<Box<ResponseHeader>>,
    /// True if the session has read its part of a body, and the rest is read directly from the connection.
    is_body_direct: bool,
}

impl<'a> Downstream<'a> {
    /// Wraps a session; requests of the admin listener have no source.
    pub const fn new(session: &'a mut ServerSession, source: Option<RequestSource>) -> Self {
        Self { session, source, head: None, is_body_direct: false }
    }
}

impl Downstream<'_> {
    /// Returns the batch line, background response or single choice; `None` for any other request.
    #[must_use]
    pub fn in_process_line(&self) -> Option<&Arc<LineDownstream>> {
        self.source.as_ref().and_then(RequestSource::as_in_process_line)
    }

    /// Returns true for a request without a socket, whose complete body is available from the start.
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        matches!(self.source, Some(RequestSource::Line(_) | RequestSource::Playground(_)))
    }

    /// Returns the source of the request; `None` for a request of the admin listener.
    #[must_use]
    pub const fn request_source(&self) -> Option<&RequestSource> {
        self.source.as_ref()
    }

    /// Returns the method of the request.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.session.req_header().method
    }

    /// Returns the path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        match self.session.req_header().uri.path() {
            "" => "/",
            path => path,
        }
    }

    /// Returns the query of the target, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.session.req_header().uri.query()
    }

    /// Returns the requested host, with its port if the client sent one.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let head = self.session.req_header();
        let asked = head.uri.authority().map(http::uri::Authority::as_str);
        asked.or_else(|| head.headers.get(header::HOST)?.to_str().ok())
    }

    /// Returns the value of the first header field with this name, given in lower case.
    #[must_use]
    pub fn header_field(&self, name: impl AsHeaderName) -> Option<&[u8]> {
        self.session.req_header().headers.get(name).map(HeaderValue::as_bytes)
    }

    /// Returns the value of the first header field with this name (lower case), which is not a constant of the `http`
    /// crate. As a request has few fields, comparing their names costs less than hashing the name.
    #[must_use]
    pub fn custom_header_field(&self, name: &str) -> Option<&[u8]> {
        self.header_fields().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Iterates over the header fields; names are in lower case.
    pub fn header_fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.session.req_header().headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
    }

    /// Returns true for a request over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.session.digest().is_some_and(|digest| digest.ssl_digest.is_some())
    }

    /// Returns true unless the client or the process closes the HTTP/1.1 connection after this exchange.
    #[must_use]
    pub fn may_keep_alive(&self) -> bool {
        self.session.as_http1().is_none_or(|_| self.session.get_keepalive().is_some())
    }

    /// Reads the next piece of the request body; `None` at its end. Yields the task when its read budget is used up.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidData`] for invalid chunks, and another kind if the body was truncated.
    pub async fn read_request_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            read_budget::consume_budget_unit().await;
            let piece = self.session.read_request_body().await.map_err(failed)?;
            read_budget::charge_bytes(piece.as_ref().map_or(0, Bytes::len));
            // An empty piece may precede the end of a chunked body.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                return Ok(piece);
            }
        }
    }

    /// Reads the part of a body of known length that has arrived with the head, and lets [`Self::read_body_into`] read
    /// the rest directly from the connection. Returns `None` if that is not possible.
    ///
    /// Pingora's session would copy each byte twice. To avoid this, the session gets the length of its part as the
    /// length of the whole body, before it evaluates the length.
    ///
    /// # Errors
    /// Same as for [`Self::read_request_body`].
    pub async fn begin_direct_body_read(&mut self) -> Result<Option<Bytes>> {
        let Some(RequestSource::Http1(connection)) = &self.source else { return Ok(None) };
        let prefix = connection.body_prefix_length();
        // With `Expect`, the session has already evaluated the length, when it sent the interim response.
        if self.header_field(header::EXPECT).is_some() {
            return Ok(None);
        }
        self.session.req_header_mut().insert_header(header::CONTENT_LENGTH, prefix).map_err(failed)?;
        let first = self.read_request_body().await?.unwrap_or_default();
        self.is_body_direct = self.session.is_body_done();
        Ok(Some(first))
    }

    /// Appends the next piece of the request body to `body`. Returns its number of bytes, 0 at the end. After
    /// [`Self::begin_direct_body_read`], it must not be called when the body is complete.
    ///
    /// # Errors
    /// Same as for [`Self::read_request_body`].
    pub async fn read_body_into(&mut self, body: &mut BytesMut) -> Result<usize> {
        if let (true, Some(RequestSource::Http1(connection))) = (self.is_body_direct, &self.source) {
            read_budget::consume_budget_unit().await;
            let before = body.len();
            let mut read = pin!(self.session.read_body_or_idle(true));
            let ended = poll_fn(|cx| connection.poll_body_into(body, || read.as_mut().poll(cx))).await;
            let count = body.len() - before;
            // A read costs only the copy by the kernel. So a poll may read more bytes here than with a decoder.
            read_budget::charge_bytes(count / DIRECT_READ_DIVISOR);
            return match ended {
                None => Ok(count),
                Some(ended) => Err(ended.map_or_else(failed, |_| ErrorKind::BrokenPipe.into())),
            };
        }
        let piece = self.read_request_body().await?.unwrap_or_default();
        body.extend_from_slice(&piece);
        Ok(piece.len())
    }

    /// Returns true if the body was read to its end.
    pub fn is_body_done(&mut self) -> bool {
        self.session.is_body_done()
    }

    /// Starts or ends the read of a long body. During the read, the HTTP/2 connection of the request has a larger
    /// receive window.
    pub fn set_reading_long_body(&mut self, is_reading: bool) {
        if let Some(RequestSource::Http2(stream)) = &self.source {
            stream.set_reading(is_reading);
        }
    }

    /// Sets the write timeout of an HTTP/2 stream from now on. HTTP/1.1 sockets have their own.
    pub fn set_h2_write_timeout(&mut self, within: Duration) {
        if self.session.is_http2() {
            self.session.set_write_timeout(Some(within));
        }
    }

    /// Waits until the client disconnects, or until the batch line has to end. Never ends while a body over HTTP/1.1 is
    /// unread.
    pub async fn wait_for_disconnect(&mut self) {
        // A disconnect cannot be detected while an HTTP/1.1 body is unread.
        if !self.session.is_body_done() && !self.session.is_http2() {
            return pending().await;
        }
        self.session.read_body_or_idle(true).await.ok();
    }

    /// Returns the signal that asks a batch line to release its permit; `None` for other requests.
    #[must_use]
    pub fn permit_recall_token(&self) -> Option<CancellationToken> {
        self.in_process_line().and_then(|line| line.permit_recall_token())
    }

    /// Sends `100 Continue` over HTTP/1.1. HTTP/1.0 has no interim responses (RFC 9110 §10.1.1).
    pub async fn write_continue_response(&mut self) {
        let version = self.session.req_header().version;
        if self.session.as_http1().is_some() && version != Version::HTTP_10 {
            self.session.write_continue_response().await.ok();
        }
    }

    /// Sets whether the connection may serve another request after the response.
    pub fn set_keep_alive(&mut self, keep: bool) {
        self.session.set_keepalive(keep.then_some(0));
    }

    /// Returns true if a response without a length is sent with chunked encoding.
    #[must_use]
    pub fn uses_chunked_encoding(&self) -> bool {
        self.session.as_http1().is_some() && self.session.req_header().version != Version::HTTP_10
    }

    /// Stores the response head, which is sent with the next write or by [`Self::flush`]. Before that, discards a
    /// short request body that is still unread.
    ///
    /// # Errors
    /// Returns no error at present: a client that is gone is noticed by the next write.
    pub async fn write_response_header(&mut self, head: ResponseHead) -> Result<()> {
        let last = match &self.source {
            Some(RequestSource::Http1(connection)) => connection.has_last_response(),
            _ => false,
        };
        self.discard_body().await;
        let head = head.into_response();
        // A body without framing ends with the connection, so the connection serves no other request.
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

    /// Reads and discards the part of an unread body that has arrived, if it is not long: the connection cannot serve
    /// another request before this body was read.
    async fn discard_body(&mut self) {
        let length = self.session.get_header_bytes(header::CONTENT_LENGTH);
        let length = std::str::from_utf8(length).ok().and_then(|length| length.parse::<usize>().ok());
        if self.session.as_http1().is_none() || length.is_none_or(|length| length > MAX_DISCARDED_BODY) {
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

    /// Sends the response head, unless it has been sent.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn flush(&mut self) -> Result<()> {
        match self.head.take() {
            Some(head) => self.session.write_response_header(head).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Writes the response head to the session, unless it has been written; `corked` is true if bytes of the body
    /// follow at once, and the connection is to send the head with them.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    async fn write_head(&mut self, corked: bool) -> Result<()> {
        if self.head.is_none() {
            return Ok(());
        }
        self.cork(corked);
        let written = self.flush().await;
        self.cork(false);
        written
    }

    /// Sends a piece of the response body; `end` is true with its last bytes, which may be empty.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn write_response_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        self.write_head(!piece.is_empty() || end).await?;
        self.session.write_response_body(piece, end).await.map_err(failed)
    }

    /// Sends a response body that is complete and not long in one write.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn write_complete_response_body(&mut self, pieces: &[Bytes]) -> Result<()> {
        match pieces {
            [piece] => self.write_response_body(piece.clone(), true).await,
            pieces => self.write_response_body(pieces.concat().into(), true).await,
        }
    }

    /// Corks (`true`) or uncorks (`false`) an HTTP/1.1 connection: while it is corked, flushed bytes are not sent
    /// yet.
    fn cork(&self, corked: bool) {
        if let Some(RequestSource::Http1(connection)) = &self.source {
            connection.cork(corked);
        }
    }

    /// Stores the usage of one choice for the exchange that requested all choices. Returns the usage as an error if
    /// this request is not a choice.
    pub(crate) fn store_choice_usage(&mut self, part: ChoiceUsage) -> std::result::Result<(), ChoiceUsage> {
        match self.in_process_line() {
            Some(line) => line.store_choice_usage(part),
            None => Err(part),
        }
    }

    /// Records the source of a choice's first content. Returns false if it must not be sent, because another choice has
    /// content of another model.
    pub(crate) fn record_first_content(&mut self, content: FirstContent) -> bool {
        self.in_process_line().is_none_or(|line| line.record_first_content(content))
    }

    /// Records the finish reason of one choice of a split request, for the exchange that joins the choices. Does nothing
    /// for any other request.
    pub(crate) fn record_choice_finish_reason(&mut self, finish: Option<FinishReason>) {
        if let Some(line) = self.in_process_line() {
            line.record_choice_finish_reason(finish);
        }
    }

    /// Returns true if a response head was written, even if it has not been sent yet.
    #[must_use]
    pub fn has_response_head(&self) -> bool {
        let written = self.session.response_written();
        self.head.is_some() || written.is_some_and(|head| !head.status.is_informational())
    }

    /// Returns the number of response body bytes sent so far.
    #[must_use]
    pub fn body_bytes_sent(&self) -> usize {
        self.session.body_bytes_sent()
    }
}

/// Converts the error of a session to an I/O error.
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
