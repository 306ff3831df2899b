//! A request of a client and its answer, whatever the connection speaks.
//! HTTP/1.1 is read and written here; HTTP/2, and the connections of
//! administrators, are the library's.

pub mod bodies;
mod date;
pub mod http1;

use crate::reply::head::Head;
use bodies::Body;
use bytes::{Bytes, BytesMut};
use http1::Http1;
use pingora_core::protocols::http::ServerSession;
use pingora_error::{Error as Failed, ErrorType};
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// One request on its connection.
// Boxing what nearly every request is would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub enum Session {
    /// Over HTTP/1.1 or 1.0.
    Http1(Http1),
    /// Over what the library speaks; a stream with what its connection is told of its body.
    Library(Box<ServerSession>, Option<Body>),
}

impl Session {
    /// The method.
    #[must_use]
    pub fn method(&self) -> &http::Method {
        match self {
            Self::Http1(http1) => http1.method(),
            Self::Library(session, _) => &session.req_header().method,
        }
    }

    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Http1(http1) => http1.request().path(),
            Self::Library(session, _) => session.req_header().uri.path(),
        }
    }

    /// The query, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        match self {
            Self::Http1(http1) => http1.request().query(),
            Self::Library(session, _) => session.req_header().uri.query(),
        }
    }

    /// The host that was asked, and perhaps the port.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        match self {
            Self::Http1(http1) => http1.request().authority(),
            Self::Library(session, _) => {
                let head = session.req_header();
                let asked = head.uri.authority().map(http::uri::Authority::as_str);
                asked.or_else(|| head.headers.get(http::header::HOST)?.to_str().ok())
            }
        }
    }

    /// The first field of this name, in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        match self {
            Self::Http1(http1) => http1.request().field(name),
            Self::Library(session, _) => {
                session.req_header().headers.get(name).map(http::HeaderValue::as_bytes)
            }
        }
    }

    /// Whether it came over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_tls(),
            Self::Library(session, _) => session.digest().is_some_and(|digest| digest.ssl_digest.is_some()),
        }
    }

    /// Whether its client wants no other request on this connection.
    #[must_use]
    pub fn is_last(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.request().is_last(),
            Self::Library(..) => false,
        }
    }

    /// Whether an answer without a length is sent in chunks.
    #[must_use]
    pub fn in_chunks(&self) -> bool {
        match self {
            Self::Http1(http1) => !http1.request().is_old(),
            Self::Library(session, _) => !session.is_http2(),
        }
    }

    /// The next piece of the request's body, `None` at its end.
    ///
    /// # Errors
    /// It was cut short.
    pub async fn read_body(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Http1(http1) => http1.read_body().await,
            Self::Library(session, _) => session.read_request_body().await.map_err(failed),
        }
    }

    /// Reads more of it behind what `body` has; how much, 0 at its end.
    ///
    /// # Errors
    /// It was cut short.
    pub async fn read_into(&mut self, body: &mut BytesMut) -> Result<usize> {
        if let Self::Http1(http1) = self {
            return http1.read_into(body).await;
        }
        let piece = self.read_body().await?.unwrap_or_default();
        body.extend_from_slice(&piece);
        Ok(piece.len())
    }

    /// Whether it was read to its end.
    pub fn is_body_done(&mut self) -> bool {
        match self {
            Self::Http1(http1) => http1.is_body_done(),
            Self::Library(session, _) => session.is_body_done(),
        }
    }

    /// Whether its body, a long one, is read from now on: the window of its connection makes room for it.
    pub fn reads(&mut self, read: bool) {
        if let Self::Library(_, Some(body)) = self {
            body.reads(read);
        }
    }

    /// Its client may leave what is written from now on waiting for so long at most.
    pub fn hurry(&mut self, within: Duration) {
        if let Self::Library(session, _) = self {
            session.set_write_timeout(Some(within));
        }
    }

    /// Ends only when the client is gone.
    pub async fn gone(&mut self) {
        match self {
            Self::Http1(http1) => http1.gone().await,
            Self::Library(session, _) => {
                session.read_body_or_idle(true).await.ok();
            }
        }
    }

    /// Whether the connection may serve another request.
    pub fn keep(&mut self, keep: bool) {
        match self {
            Self::Http1(http1) => http1.keep(keep),
            Self::Library(session, _) => session.set_keepalive(keep.then_some(0)),
        }
    }

    /// Tells a client that waits for it to send its body.
    pub async fn write_continue(&mut self) {
        match self {
            Self::Http1(http1) => http1.write_continue().await.ok(),
            Self::Library(session, _) => session.write_continue_response().await.ok(),
        };
    }

    /// Takes the head of the answer. It leaves with what is written next, or with [`Session::flush`].
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_head(&mut self, head: Head) -> Result<()> {
        match self {
            Self::Http1(http1) => {
                http1.write_head(head);
                Ok(())
            }
            Self::Library(session, _) => {
                let parsed = head.parsed().ok_or(ErrorKind::InvalidData)?;
                session.write_response_header(parsed).await.map_err(failed)
            }
        }
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn flush(&mut self) -> Result<()> {
        match self {
            Self::Http1(http1) => http1.flush().await,
            Self::Library(..) => Ok(()),
        }
    }

    /// Sends some of the answer's body.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_body(&mut self, piece: Bytes, end: bool) -> Result<()> {
        match self {
            Self::Http1(http1) => http1.write_body(&piece, end).await,
            Self::Library(session, _) => session.write_response_body(piece, end).await.map_err(failed),
        }
    }

    /// Sends a short body as one.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn write_whole(&mut self, pieces: &[Bytes]) -> Result<()> {
        match self {
            Self::Http1(http1) => http1.write_whole(pieces).await,
            Self::Library(..) => self.write_body(pieces.concat().into(), true).await,
        }
    }

    /// Whether the head of the answer was taken.
    #[must_use]
    pub fn answered(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.answered(),
            Self::Library(session, _) => {
                session.response_written().is_some_and(|head| !head.status.is_informational())
            }
        }
    }

    /// Bytes of the answer's body so far.
    #[must_use]
    pub fn body_bytes_sent(&self) -> usize {
        match self {
            Self::Http1(http1) => http1.body_bytes_sent(),
            Self::Library(session, _) => session.body_bytes_sent(),
        }
    }
}

/// What the library says of a connection that failed.
#[allow(clippy::boxed_local)]
fn failed(error: Box<Failed>) -> Error {
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => ErrorKind::TimedOut.into(),
        _ => ErrorKind::BrokenPipe.into(),
    }
}

#[cfg(test)]
mod tests;
