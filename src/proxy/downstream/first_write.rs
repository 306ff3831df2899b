//! Delivery of the first content of a stream. A client that leaves before any content was delivered is not charged.

use super::Downstream;
use crate::http::request_stream::Http1ConnectionState;
use crate::proxy::RequestSource;
use bytes::Bytes;

/// Outcome of sending the first piece of the content of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstWriteOutcome {
    /// No byte was delivered before the client left or stopped reading.
    Undelivered,
    /// A part was delivered before the client left or stopped reading.
    Interrupted,
    Complete,
}

impl Downstream<'_> {
    /// Sends the first piece of the content of a stream, and returns if any byte of it, or of the
    /// head of its chunk, was delivered, that is, accepted by the connection of the client.
    pub(crate) async fn write_first_content(&mut self, mut piece: Bytes) -> FirstWriteOutcome {
        // An HTTP/2 session does not report which part of a piece the windows of the client admitted. So the first byte
        // is sent by itself; in a batch or over HTTP/1.1, the whole piece is.
        let over_h2 = self.session.is_http2() && piece.len() > 1;
        let first = if over_h2 { piece.split_to(1) } else { piece.split_off(0) };
        if self.write_head(true).await.is_err() {
            return FirstWriteOutcome::Undelivered;
        }
        let before = self.http1_connection().map_or(0, Http1ConnectionState::written_bytes);
        if self.write_response_body(first, false).await.is_err() {
            let sent = self.http1_connection().map_or(0, Http1ConnectionState::sent_bytes);
            return match sent > before {
                true => FirstWriteOutcome::Interrupted,
                false => FirstWriteOutcome::Undelivered,
            };
        }
        match self.write_response_body(piece, false).await {
            Ok(()) => FirstWriteOutcome::Complete,
            Err(_) => FirstWriteOutcome::Interrupted,
        }
    }

    /// Returns the HTTP/1.1 connection of the request; `None` for other requests.
    fn http1_connection(&self) -> Option<&Http1ConnectionState> {
        match &self.source {
            Some(RequestSource::Http1(connection)) => Some(connection),
            _ => None,
        }
    }
}
