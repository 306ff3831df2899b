//! HTTP/1.1 response heads, and the end of the response body. The head stays in its original bytes, and fields are
//! looked up on demand.
//!
//! Rules: RFC 9112 §6.3 and §7.1. An ambiguous response is rejected, or its connection is closed after it, so that its
//! bytes are never read as another response.

mod boundary;
mod chunks;
#[cfg(test)]
mod tests;

pub use boundary::ChunkBoundary;
pub use chunks::{Chunks, Step};

/// Maximum bytes of a head.
pub const HEAD: usize = 64 * 1024;
/// Maximum number of fields in a head.
const FIELDS: usize = 128;

/// Reason why bytes are not an HTTP/1.1 response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Framing of a body, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Body of this many bytes, possibly zero.
    Length(u64),
    /// Chunked body.
    Chunked,
    /// Body that ends with the connection.
    Close,
}

/// Parsed response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, including its blank line.
    pub size: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Framing of the body.
    pub framing: Framing,
    /// True if the connection cannot be reused.
    pub last: bool,
}

impl Head {
    /// Parses the head at the start of `bytes`; `None` while it is incomplete. The response must belong to a request
    /// other than HEAD.
    ///
    /// # Errors
    /// Returns the reason if the head is invalid, larger than [`HEAD`] or has more than 128 fields.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        let size = match lenient().parse_response(&mut answer, bytes) {
            Ok(httparse::Status::Complete(size)) if size <= HEAD => size,
            Ok(httparse::Status::Partial) if bytes.len() <= HEAD => return Ok(None),
            Ok(_) => return Err(Malformed("its head is too large")),
            Err(_) => return Err(Malformed("its head is not HTTP/1.1")),
        };
        let status = answer.code.filter(|code| *code >= 100).ok_or(Malformed("it has no status"))?;
        let old = answer.version != Some(1);
        let mut told = Told::default();
        for field in answer.headers.iter() {
            told.field(field.name, field.value)?;
        }
        let framing = match (status, told.coded, told.length) {
            (101, ..) => return Err(Malformed("it switches the protocol without a request")),
            (100..=199 | 204 | 304, ..) => Framing::Length(0),
            (_, true, _) => Framing::Chunked,
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::Close,
        };
        let both = told.coded && told.length.is_some();
        let kept = if old { told.kept && !told.coded } else { !told.closes };
        let last = both || !kept || framing == Framing::Close;
        Ok(Some(Self { size, status, framing, last }))
    }
}

/// Search for the end of a head that arrives in pieces. To parse it with every byte would take quadratic time: it is
/// parsed when its blank line may have arrived, and whenever its length has doubled, so that invalid heads are rejected
/// early.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// Number of bytes searched for a blank line.
    searched: usize,
    /// Number of bytes at the last parse.
    read: usize,
}

impl HeadScan {
    /// True if [`Head::read`] may find something new in these bytes, which start with the bytes of the last call.
    pub fn is_due(&mut self, bytes: &[u8]) -> bool {
        // A blank line is a line end preceded by at most two bytes of it.
        let from = self.searched.saturating_sub(2);
        self.searched = bytes.len();
        let rest = bytes.get(from..).unwrap_or_default();
        let ends = |at: usize| matches!(rest.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..]));
        let due = bytes.len() > HEAD
            || bytes.len() >= self.read.saturating_mul(2).max(1)
            || memchr::memchr_iter(b'\n', rest).any(ends);
        if due {
            self.read = bytes.len();
        }
        due
    }
}

/// Parser settings that tolerate folded values and blanks before a colon, which do not change the meaning of any field
/// that is read here.
fn lenient() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    config
}

/// Returns the value of the first field with this name in a complete head.
#[must_use]
pub fn field<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    lenient().parse_response(&mut answer, head).ok()?;
    answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Fields that determine the framing.
#[derive(Default)]
struct Told {
    length: Option<u64>,
    coded: bool,
    closes: bool,
    kept: bool,
}

impl Told {
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Malformed> {
        if name.eq_ignore_ascii_case("content-length") {
            for length in tokens(value) {
                let length = number(length).ok_or(Malformed("its length is not a number"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(Malformed("it has two lengths"));
                }
                self.length = Some(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.coded || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("its body has an unexpected transfer coding"));
            }
            self.coded = true;
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"close"));
            self.kept |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
        }
        Ok(())
    }
}

/// Elements of a comma-separated list.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a number of at most nineteen digits.
fn number(digits: &[u8]) -> Option<u64> {
    let sound = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
