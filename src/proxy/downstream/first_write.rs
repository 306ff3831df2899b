//! Delivery of the first content of a stream. A client that leaves before any content was delivered is not charged.

use super::Downstream;
use crate::proxy::RequestOrigin;
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
    /// Sends the first piece of the content of a stream, and returns if any byte of it was delivered, that is, accepted
    /// by the connection of the client.
    pub(crate) async fn write_first_content(&mut self, mut piece: Bytes) -> FirstWriteOutcome {
        // An HTTP/2 session does not report which part of a piece the windows of the client admitted. So the first byte
        // is sent by itself; in a batch or over HTTP/1.1, the whole piece is.
        let over_h2 = self.session.is_http2() && piece.len() > 1;
        let (before, first) =
            (self.socket_bytes(), if over_h2 { piece.split_to(1) } else { piece.split_off(0) });
        if self.write_response_body(first, false).await.is_err() {
            return match self.socket_bytes() > before {
                true => FirstWriteOutcome::Interrupted,
                false => FirstWriteOutcome::Undelivered,
            };
        }
        match self.write_response_body(piece, false).await {
            Ok(()) => FirstWriteOutcome::Complete,
            Err(_) => FirstWriteOutcome::Interrupted,
        }
    }

    /// Returns the number of bytes that the socket of an HTTP/1.1 connection has accepted; 0 for other requests.
    fn socket_bytes(&self) -> usize {
        match &self.origin {
            Some(RequestOrigin::Http1(connection)) => connection.sent_bytes(),
            _ => 0,
        }
    }
}
