//! Complete, validated request head: its bytes, and the positions of its elements.

use super::{ByteSpan, HeadParser, span_bytes};
use bytes::Bytes;

/// Validated request head. Fields are looked up in the original bytes; nothing is copied.
#[derive(Debug)]
pub struct Http1RequestHead {
    bytes: Bytes,
    scan: HeadParser,
}

impl HeadParser {
    /// Combines the parsed positions with the bytes that were parsed.
    #[must_use]
    pub const fn into_request_head(self, bytes: Bytes) -> Http1RequestHead {
        Http1RequestHead { bytes, scan: self }
    }
}

impl Http1RequestHead {
    /// Returns the method as sent.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        span_bytes(&self.bytes, self.scan.method)
    }

    /// Returns the path without the query: `*` for the target `*` (of OPTIONS), and the whole target of a CONNECT
    /// request.
    #[must_use]
    pub fn path(&self) -> &str {
        let path = self.text(self.scan.target.path);
        if path.is_empty() { "/" } else { path }
    }

    /// Returns the query after the question mark, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.scan.target.query.map(|span| self.text(span))
    }

    /// Returns the requested host from the target, or else from the `Host` field, with the port if it was sent; `None`
    /// only for an HTTP/1.0 request.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.scan.target.authority.or(self.scan.host).map(|span| self.text(span))
    }

    /// Returns the value of the first field with this name (case-insensitive), without surrounding blanks.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.scan.field(&self.bytes, name)
    }

    /// Returns the length of the head in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the length of the body in bytes; `None` if it is chunked.
    #[must_use]
    pub fn body_length(&self) -> Option<u64> {
        self.scan.body_length()
    }

    /// Returns true for a request of HTTP/1.0.
    #[must_use]
    pub const fn is_http10(&self) -> bool {
        self.scan.old
    }

    /// Returns true if the client sends no further request on this connection.
    #[must_use]
    pub const fn closes_connection(&self) -> bool {
        self.scan.closes || (self.scan.old && !self.scan.keeps)
    }

    fn text(&self, span: ByteSpan) -> &str {
        std::str::from_utf8(span_bytes(&self.bytes, span)).unwrap_or_default()
    }
}
