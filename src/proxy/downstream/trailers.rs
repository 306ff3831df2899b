//! Trailer fields of a response.

use super::{Downstream, failed};
use bytes::Bytes;
use http::HeaderMap;
use std::io::Result;

impl Downstream<'_> {
    /// Returns true if the response may end with trailer fields, as over HTTP/2. Pingora sends none over HTTP/1.1.
    #[must_use]
    pub fn supports_trailers(&self) -> bool {
        self.session.is_http2()
    }

    /// Sends the last bytes of the response body, which may be empty, and trailer fields where they can be sent.
    ///
    /// # Errors
    /// Returns an error if the client is gone.
    pub async fn write_end_with_trailers(&mut self, piece: Bytes, trailers: HeaderMap) -> Result<()> {
        if !self.supports_trailers() || trailers.is_empty() {
            return self.write_response_body(piece, true).await;
        }
        if !piece.is_empty() {
            self.write_response_body(piece, false).await?;
        }
        self.flush().await?;
        self.session.write_response_trailers(trailers).await.map_err(failed)
    }
}
