//! A head that is whole and proven: the bytes it came in, and where things stand.

use super::{Scan, Span, part};
use bytes::Bytes;

/// The head of a request. Fields are looked up where they stand; nothing is copied.
#[derive(Debug)]
pub struct Request {
    bytes: Bytes,
    scan: Scan,
}

impl Scan {
    /// What was read, of the bytes that it was read from.
    #[must_use]
    pub const fn request(self, bytes: Bytes) -> Request {
        Request { bytes, scan: self }
    }
}

impl Request {
    /// The method as it was sent.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        part(&self.bytes, self.scan.method)
    }

    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        let path = self.text(self.scan.target.path);
        if path.is_empty() { "/" } else { path }
    }

    /// What stands behind the question mark, if there is one.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.scan.target.query.map(|span| self.text(span))
    }

    /// The host, and perhaps the port, that was asked.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.scan.target.authority.or(self.scan.host).map(|span| self.text(span))
    }

    /// The value of the first field of this name, whatever its case, without the blanks around it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let name = name.as_bytes();
        let is =
            |span: Span| span.1 - span.0 == name.len() && part(&self.bytes, span).eq_ignore_ascii_case(name);
        self.scan.fields.iter().find(|(name, _)| is(*name)).map(|(_, value)| part(&self.bytes, *value))
    }

    /// Bytes of the head.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the body; `None` where it comes in chunks.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.scan.body_length()
    }

    /// Whether it is of HTTP/1.0.
    #[must_use]
    pub const fn is_old(&self) -> bool {
        self.scan.old
    }

    /// Whether its client wants no other request on this connection.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.scan.closes || (self.scan.old && !self.scan.keeps)
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(part(&self.bytes, span)).unwrap_or_default()
    }
}
