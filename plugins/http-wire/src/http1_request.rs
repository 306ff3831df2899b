//! Parser of HTTP/1.1 and HTTP/1.0 request heads, which runs before any other processing. It checks completeness,
//! limits and ambiguity: a head that two servers could interpret differently is rejected, above all in the framing of
//! the body.

mod request_head;
mod request_target;

pub use request_head::Http1RequestHead;
use request_target::RequestTarget;

/// Bytes by which a request line may exceed the maximum length of a target.
const REQUEST_LINE_OVERHEAD: usize = 64;

/// Limits of a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum bytes of the head.
    pub bytes: usize,
    /// Maximum bytes of the request target.
    pub target: usize,
    /// Maximum number of header fields.
    pub fields: usize,
}

/// Reason for rejecting a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// Violation of a rule, or an ambiguity.
    Malformed(&'static str),
    /// Request target longer than [`HeadLimits::target`], or a request line that exceeds this limit by more than 64
    /// bytes.
    TargetTooLong,
    /// Head longer than [`HeadLimits::bytes`].
    TooLarge,
    /// Head with too many header fields.
    TooManyFields,
}

/// Maximum number of empty lines before a request line that are ignored (RFC 9112, section 2.2).
const MAX_EMPTY_LINES: usize = 2;

/// Counter of the empty lines before a request line, which some clients send after the body of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeadingEmptyLines(usize);

impl LeadingEmptyLines {
    /// Returns the number of bytes at the start of a head that are ignored. The caller removes these bytes before it
    /// parses the rest, so that no other parser sees them. Further empty lines are not ignored.
    pub fn ignored_prefix_length(&mut self, bytes: &[u8]) -> usize {
        let lines = bytes.chunks_exact(2).take(MAX_EMPTY_LINES - self.0).take_while(|line| *line == b"\r\n");
        let count = lines.count();
        self.0 += count;
        count * 2
    }
}

/// Byte range in a head, as start and end.
type ByteSpan = (usize, usize);

/// Initial capacity for fields, enough for most heads.
const TYPICAL_FIELDS: usize = 20;

/// Parser of a head that arrives in pieces.
#[derive(Debug, Default)]
pub struct HeadParser {
    /// Offset of the next line to parse in the received bytes of the head.
    at: usize,
    /// Number of bytes without a line end, so that a line that arrives slowly is not searched again with each byte.
    searched: usize,
    /// True once the request line is parsed.
    begun: bool,
    /// True for HTTP/1.0.
    old: bool,
    method: ByteSpan,
    target: RequestTarget,
    /// Positions of the names and values of the header fields, without surrounding blanks.
    fields: Vec<(ByteSpan, ByteSpan)>,
    /// Position of the value of `Host`; `None` without this field.
    host: Option<ByteSpan>,
    /// Value of `Content-Length`; `None` without this field.
    length: Option<u64>,
    /// True if `Transfer-Encoding` is `chunked`.
    coded: bool,
    /// True if `Connection` contains `close`.
    closes: bool,
    /// True if `Connection` contains `keep-alive`.
    keeps: bool,
}

impl HeadParser {
    /// Continues parsing; returns the length of the head once it is complete, and `None` before. `bytes` are all bytes
    /// received so far: those of the last call and what has arrived since.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn push(&mut self, bytes: &[u8], caps: HeadLimits) -> Result<Option<usize>, HeadError> {
        loop {
            let from = self.at;
            let rest = bytes.get(from..).unwrap_or_default();
            let searched = self.searched.saturating_sub(from);
            let found = memchr::memchr(b'\n', rest.get(searched..).unwrap_or_default());
            let Some(end) = found.map(|end| searched + end) else { break };
            let line = rest.get(..end).unwrap_or_default();
            self.at += end + 1;
            // A request line that is too long is also rejected if its end has arrived. Otherwise the error would
            // depend on the pieces in which the bytes arrive.
            let longest =
                if self.begun { usize::MAX } else { caps.target.saturating_add(REQUEST_LINE_OVERHEAD) };
            if self.at > caps.bytes || line.len() > longest {
                return Err(self.size_error(line, caps));
            }
            let line = line.strip_suffix(b"\r").ok_or(HeadError::Malformed("a line ends without CR LF"))?;
            if line.iter().fold(false, |found, byte| found | is_control_except_tab(*byte)) {
                return Err(HeadError::Malformed("it holds a control character"));
            }
            if !self.begun {
                self.parse_request_line(line, from, caps)?;
            } else if line.is_empty() {
                return self.finish(bytes).map(|()| Some(self.at));
            } else {
                self.parse_field(line, from, caps)?;
            }
        }
        self.searched = bytes.len();
        let rest = bytes.get(self.at..).unwrap_or_default();
        if bytes.len() > caps.bytes
            || (!self.begun && rest.len() > caps.target.saturating_add(REQUEST_LINE_OVERHEAD))
        {
            return Err(self.size_error(rest, caps));
        }
        Ok(None)
    }

    /// Returns the length of the body after a complete head, in bytes; `None` for a chunked one.
    #[must_use]
    pub const fn body_length(&self) -> Option<u64> {
        match (self.coded, self.length) {
            (true, _) => None,
            (false, Some(length)) => Some(length),
            (false, None) => Some(0),
        }
    }

    /// Returns true for a request of HTTP/1.0.
    #[must_use]
    pub const fn is_http10(&self) -> bool {
        self.old
    }

    /// Returns the value of the first field with this name (case-insensitive) that was parsed, without surrounding
    /// blanks. `bytes` are those of the head.
    #[must_use]
    pub fn field<'h>(&self, bytes: &'h [u8], name: &str) -> Option<&'h [u8]> {
        let is = |span: ByteSpan| {
            span.1 - span.0 == name.len() && span_bytes(bytes, span).eq_ignore_ascii_case(name.as_bytes())
        };
        self.fields.iter().find(|(name, _)| is(*name)).map(|(_, value)| span_bytes(bytes, *value))
    }

    /// Returns the error for a line that is too long: `TargetTooLong` if it is a request line that exceeds the limit
    /// of the target, and otherwise `TooLarge`.
    fn size_error(&self, line: &[u8], caps: HeadLimits) -> HeadError {
        if !self.begun && line.len() > caps.target { HeadError::TargetTooLong } else { HeadError::TooLarge }
    }

    fn parse_request_line(&mut self, line: &[u8], from: usize, caps: HeadLimits) -> Result<(), HeadError> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next())
        else {
            return Err(HeadError::Malformed("the request line is not METHOD TARGET VERSION"));
        };
        if target.len() > caps.target {
            return Err(HeadError::TargetTooLong);
        }
        if !is_token(method) || target.is_empty() {
            return Err(HeadError::Malformed("the request line is not METHOD TARGET VERSION"));
        }
        self.old = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(HeadError::Malformed("the version is neither HTTP/1.1 nor HTTP/1.0")),
        };
        self.method = (from, from + method.len());
        self.target = RequestTarget::parse(target, from + method.len() + 1, method == b"CONNECT")?;
        self.begun = true;
        Ok(())
    }

    fn parse_field(&mut self, line: &[u8], from: usize, caps: HeadLimits) -> Result<(), HeadError> {
        if self.fields.len() >= caps.fields {
            return Err(HeadError::TooManyFields);
        }
        let colon = memchr::memchr(b':', line).ok_or(HeadError::Malformed("a field has no colon"))?;
        let (name, value) =
            (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if !is_token(name) {
            // The check also rejects folded header fields and fields with a space before the colon.
            return Err(HeadError::Malformed("the name of a field is not a token"));
        }
        let start = from + colon + 1 + (value.len() - value.trim_ascii_start().len());
        let value = value.trim_ascii();
        let span = (start, start + value.len());
        if self.fields.is_empty() {
            self.fields.reserve(TYPICAL_FIELDS);
        }
        self.fields.push(((from, from + colon), span));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.replace(span).is_some() {
                    return Err(HeadError::Malformed("there is more than one Host"));
                }
                if value.contains(&b'@') {
                    Err(HeadError::Malformed("there is a user in its Host"))
                } else if !is_host(value) {
                    Err(HeadError::Malformed("its Host is not a host and port"))
                } else {
                    Ok(())
                }
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.parse_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if std::mem::replace(&mut self.coded, true) {
                    return Err(HeadError::Malformed("there is more than one Transfer-Encoding"));
                }
                let chunked = value.eq_ignore_ascii_case(b"chunked");
                if chunked { Ok(()) } else { Err(HeadError::Malformed("Transfer-Encoding is not chunked")) }
            }
            _ => Ok(()),
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        // Overflow is impossible: a number of eighteen digits fits in 64 bits.
        if !(1..=18).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
            return Err(HeadError::Malformed("Content-Length is not a number"));
        }
        let length = value.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit & 15));
        if self.length.replace(length).is_some() {
            return Err(HeadError::Malformed("there is more than one Content-Length"));
        }
        Ok(())
    }

    fn parse_connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn finish(&self, bytes: &[u8]) -> Result<(), HeadError> {
        match (self.coded, self.length, self.old) {
            (true, Some(_), _) => {
                Err(HeadError::Malformed("there are both Content-Length and Transfer-Encoding"))
            }
            (true, _, true) => Err(HeadError::Malformed("HTTP/1.0 has no Transfer-Encoding")),
            _ if self.host.is_none() && !self.old => Err(HeadError::Malformed("there is no Host")),
            _ => self.target.check_host_field_matches(bytes, self.host),
        }
    }
}

/// Returns the bytes in a span; none if the span is out of range.
fn span_bytes(bytes: &[u8], (from, to): ByteSpan) -> &[u8] {
    bytes.get(from..to).unwrap_or_default()
}

/// Returns the request target for logging, even if the rest of the head is invalid; empty if there is none.
#[must_use]
pub fn request_target_for_log(bytes: &[u8]) -> &str {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    let target = line.unwrap_or_default().split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    std::str::from_utf8(target).unwrap_or_default()
}

/// Returns the value of the first field with this name (case-insensitive) in the bytes that have arrived of a head,
/// even if another part of the head is invalid.
#[must_use]
pub fn field_of_invalid_head<'h>(bytes: &'h [u8], name: &str) -> Option<&'h [u8]> {
    // The first line is the request line.
    let lines = bytes.trim_ascii_start().split(|byte| *byte == b'\n').skip(1);
    lines.take_while(|line| !line.trim_ascii().is_empty()).find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
    })
}

/// Returns true for an ASCII control character other than a tab.
pub(crate) const fn is_control_except_tab(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Returns true for a host with an optional port, in the characters of RFC 3986 §3.2.2. An empty host is valid, for a
/// target without a host (RFC 9112 §3.2).
#[must_use]
pub fn is_host(authority: &[u8]) -> bool {
    let (host, rest) = match authority.strip_prefix(b"[") {
        Some(inner) => {
            let Some(end) = memchr::memchr(b']', inner) else { return false };
            let (address, rest) =
                (inner.get(..end).unwrap_or_default(), inner.get(end + 1..).unwrap_or_default());
            let is_address = std::str::from_utf8(address)
                .is_ok_and(|address| address.parse::<core::net::Ipv6Addr>().is_ok());
            if !is_address {
                return false;
            }
            (&b""[..], rest)
        }
        None => authority.split_at(memchr::memchr(b':', authority).unwrap_or(authority.len())),
    };
    let of_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte);
    let port = match rest.split_first() {
        None => true,
        Some((b':', port)) => port.len() <= 5 && port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    };
    host.iter().all(of_host) && port
}

/// Returns true for a token, as in names of methods and fields (RFC 9110 §5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().fold(true, |all, byte| all & is_token_byte(*byte))
}

const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

#[cfg(test)]
mod tests;
