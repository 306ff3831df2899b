//! Parser of HTTP/1.1 request heads, which runs before any other processing. It checks completeness, limits and
//! ambiguity: a head that two servers could interpret differently is rejected, above all in the framing of the body.

mod request;
mod target;

pub use request::Request;
use target::Target;

/// Maximum bytes of a request line besides the target.
const AROUND: usize = 64;

/// Limits of a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Maximum bytes of the head.
    pub bytes: usize,
    /// Maximum bytes of the request target.
    pub target: usize,
    /// Maximum number of header fields.
    pub fields: usize,
}

/// Reason for rejecting a request head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Violation of a rule, or an ambiguity.
    Malformed(&'static str),
    /// Request target over its limit.
    LongTarget,
    /// Head over its limit of bytes.
    Large,
    /// Too many fields.
    ManyFields,
}

/// Byte range in a head, as start and end.
type Span = (usize, usize);

/// Initial capacity for fields, enough for most heads.
const USUAL: usize = 20;

/// Parser of a head that arrives in pieces.
#[derive(Debug, Default)]
pub struct Scan {
    /// Offset of the next line.
    at: usize,
    /// Number of bytes without a line end, so that a line that arrives slowly is not searched again with each byte.
    searched: usize,
    begun: bool,
    blank: bool,
    old: bool,
    method: Span,
    target: Target,
    /// Names and values, without surrounding blanks.
    fields: Vec<(Span, Span)>,
    host: Option<Span>,
    length: Option<u64>,
    coded: bool,
    closes: bool,
    keeps: bool,
}

impl Scan {
    /// Continues parsing; returns the length of the head once it is complete. `bytes` always start with the bytes of
    /// the last call.
    ///
    /// # Errors
    /// Returns the first violation.
    pub fn push(&mut self, bytes: &[u8], caps: Caps) -> Result<Option<usize>, Wrong> {
        loop {
            let from = self.at;
            let rest = bytes.get(from..).unwrap_or_default();
            let searched = self.searched.saturating_sub(from);
            let found = memchr::memchr(b'\n', rest.get(searched..).unwrap_or_default());
            let Some(end) = found.map(|end| searched + end) else { break };
            let line = rest.get(..end).unwrap_or_default();
            self.at += end + 1;
            // A request line that is too long is rejected before and after its end arrives, so that the error does not
            // depend on the pieces in which the bytes arrive.
            let longest = if self.begun { usize::MAX } else { caps.target.saturating_add(AROUND) };
            if self.at > caps.bytes || line.len() > longest {
                return Err(self.large(line, caps));
            }
            let line = line.strip_suffix(b"\r").ok_or(Wrong::Malformed("a line ends without CR LF"))?;
            if line.iter().fold(false, |found, byte| found | control(*byte)) {
                return Err(Wrong::Malformed("it holds a control character"));
            }
            if !self.begun {
                self.first(line, from, caps)?;
            } else if line.is_empty() {
                return self.end(bytes).map(|()| Some(self.at));
            } else {
                self.field(line, from, caps)?;
            }
        }
        self.searched = bytes.len();
        let rest = bytes.get(self.at..).unwrap_or_default();
        if bytes.len() > caps.bytes || (!self.begun && rest.len() > caps.target.saturating_add(AROUND)) {
            return Err(self.large(rest, caps));
        }
        Ok(None)
    }

    /// Length of the body after a complete head, in bytes; `None` for a chunked one.
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
    pub const fn is_old(&self) -> bool {
        self.old
    }

    /// Error for the limit that a line exceeds, or the last line of a large head.
    fn large(&self, line: &[u8], caps: Caps) -> Wrong {
        if !self.begun && line.len() > caps.target { Wrong::LongTarget } else { Wrong::Large }
    }

    fn first(&mut self, line: &[u8], from: usize, caps: Caps) -> Result<(), Wrong> {
        if line.is_empty() && !std::mem::replace(&mut self.blank, true) {
            return Ok(());
        }
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next())
        else {
            return Err(Wrong::Malformed("the request line is not METHOD TARGET VERSION"));
        };
        if target.len() > caps.target {
            return Err(Wrong::LongTarget);
        }
        if !is_token(method) || target.is_empty() {
            return Err(Wrong::Malformed("the request line is not METHOD TARGET VERSION"));
        }
        self.old = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Wrong::Malformed("the version is neither HTTP/1.1 nor HTTP/1.0")),
        };
        self.method = (from, from + method.len());
        self.target = Target::read(target, from + method.len() + 1, method == b"CONNECT")?;
        self.begun = true;
        Ok(())
    }

    fn field(&mut self, line: &[u8], from: usize, caps: Caps) -> Result<(), Wrong> {
        if self.fields.len() >= caps.fields {
            return Err(Wrong::ManyFields);
        }
        let colon = memchr::memchr(b':', line).ok_or(Wrong::Malformed("a field has no colon"))?;
        let (name, value) =
            (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if !is_token(name) {
            // Includes folded fields and fields with a space before the colon.
            return Err(Wrong::Malformed("the name of a field is not a token"));
        }
        let start = from + colon + 1 + (value.len() - value.trim_ascii_start().len());
        let value = value.trim_ascii();
        let span = (start, start + value.len());
        if self.fields.is_empty() {
            self.fields.reserve(USUAL);
        }
        self.fields.push(((from, from + colon), span));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.replace(span).is_some() {
                    return Err(Wrong::Malformed("there is more than one Host"));
                }
                if value.contains(&b'@') {
                    Err(Wrong::Malformed("there is a user in its Host"))
                } else if !is_host(value) {
                    Err(Wrong::Malformed("its Host is not a host and port"))
                } else {
                    Ok(())
                }
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if std::mem::replace(&mut self.coded, true) {
                    return Err(Wrong::Malformed("there is more than one Transfer-Encoding"));
                }
                let chunked = value.eq_ignore_ascii_case(b"chunked");
                if chunked { Ok(()) } else { Err(Wrong::Malformed("Transfer-Encoding is not chunked")) }
            }
            _ => Ok(()),
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), Wrong> {
        // A number of eighteen digits always fits in 64 bits.
        if !(1..=18).contains(&value.len()) || !value.iter().all(u8::is_ascii_digit) {
            return Err(Wrong::Malformed("Content-Length is not a number"));
        }
        let length = value.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit & 15));
        if self.length.replace(length).is_some() {
            return Err(Wrong::Malformed("there is more than one Content-Length"));
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.closes |= option.eq_ignore_ascii_case(b"close");
            self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn end(&self, bytes: &[u8]) -> Result<(), Wrong> {
        match (self.coded, self.length, self.old) {
            (true, Some(_), _) => {
                Err(Wrong::Malformed("there are both Content-Length and Transfer-Encoding"))
            }
            (true, _, true) => Err(Wrong::Malformed("HTTP/1.0 has no Transfer-Encoding")),
            _ if self.host.is_none() && !self.old => Err(Wrong::Malformed("there is no Host")),
            _ => self.target.agrees(bytes, self.host),
        }
    }
}

/// Bytes of a span.
fn part(bytes: &[u8], (from, to): Span) -> &[u8] {
    bytes.get(from..to).unwrap_or_default()
}

/// Returns the target of a head that may be invalid otherwise, for logging.
#[must_use]
pub fn target(bytes: &[u8]) -> &str {
    let line = bytes.trim_ascii_start().split(|byte| *byte == b'\r' || *byte == b'\n').next();
    let target = line.unwrap_or_default().split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    std::str::from_utf8(target).unwrap_or_default()
}

pub(crate) const fn control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// True for a host with an optional port, in the characters of RFC 3986 §3.2.2. An empty host is valid, for a target
/// without a host (RFC 9112 §3.2).
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

/// True for a token, as in names of methods and fields (RFC 9110 §5.6.2).
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().fold(true, |all, byte| all & of_token(*byte))
}

const fn of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

#[cfg(test)]
mod tests;
