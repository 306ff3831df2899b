//! HTTP/1.1 response heads, and the end of the response body. The head stays in its original bytes, and fields are
//! looked up on demand.
//!
//! Rules: RFC 9112 §6.3 and §7.1. An ambiguous response is rejected, or its connection is closed afterwards. So bytes
//! of one response are never read as a part of another.

mod chunk_boundary;
mod chunk_decoder;
#[cfg(test)]
mod tests;

pub use chunk_boundary::ChunkedBodyScanner;
pub use chunk_decoder::{ChunkDecoder, ChunkStep};

use std::mem::MaybeUninit;

/// Maximum bytes of a head.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 128;

/// Reason why bytes are not an HTTP/1.1 response or a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedMessage(pub &'static str);

/// Framing of a body, which determines its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// Body of this many bytes, possibly zero.
    Length(u64),
    /// Chunked body.
    Chunked,
    /// Body that ends with the connection.
    UntilClose,
}

/// Parsed response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http1ResponseHead {
    /// Bytes of the head, including its blank line.
    pub size: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Framing of the body.
    pub framing: BodyFraming,
    /// True if the connection cannot be reused.
    pub is_last: bool,
}

impl Http1ResponseHead {
    /// Parses the head at the start of `bytes`; `None` while it is incomplete. The response must belong to a request
    /// other than HEAD.
    ///
    /// # Errors
    /// Returns the reason if the head is invalid, has ambiguous framing, switches the protocol, is larger than
    /// [`MAX_HEAD_BYTES`] or has more than 128 fields.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, MalformedMessage> {
        let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut answer = httparse::Response::new(&mut []);
        let parsed = lenient_config().parse_response_with_uninit_headers(&mut answer, bytes, &mut fields);
        let size = match parsed {
            Ok(httparse::Status::Complete(size)) if size <= MAX_HEAD_BYTES => size,
            Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) => return Err(MalformedMessage("its head is too large")),
            Err(_) => return Err(MalformedMessage("its head is not HTTP/1.1")),
        };
        let status = answer.code.filter(|code| *code >= 100).ok_or(MalformedMessage("it has no status"))?;
        let old = answer.version != Some(1);
        let mut framing_fields = FramingFields::default();
        for field in answer.headers.iter() {
            framing_fields.field(field.name, field.value)?;
        }
        let framing = match (status, framing_fields.is_chunked, framing_fields.length) {
            (101, ..) => return Err(MalformedMessage("it switches the protocol without a request")),
            (100..=199 | 204 | 304, ..) => BodyFraming::Length(0),
            (_, true, _) => BodyFraming::Chunked,
            (_, false, Some(length)) => BodyFraming::Length(length),
            (_, false, None) => BodyFraming::UntilClose,
        };
        let both = framing_fields.is_chunked && framing_fields.length.is_some();
        let keeps_alive = if old {
            framing_fields.keeps_alive && !framing_fields.is_chunked
        } else {
            !framing_fields.closes_connection
        };
        let last = both || !keeps_alive || framing == BodyFraming::UntilClose;
        Ok(Some(Self { size, status, framing, is_last: last }))
    }
}

/// Scan of a head that arrives in pieces. It decides after each piece whether to parse the head, because parsing
/// after every piece would take quadratic time. A head is parsed if its blank line may have arrived, and whenever its
/// length has doubled, so that an invalid head is rejected early.
#[derive(Debug, Default)]
pub struct ResponseHeadScan {
    /// Number of bytes searched for a blank line.
    searched: usize,
    /// Number of bytes at the last parse.
    read: usize,
}

impl ResponseHeadScan {
    /// Returns true if `bytes` are to be parsed now by [`Http1ResponseHead::parse`]. `bytes` must start with the
    /// bytes of the last call.
    pub fn should_parse(&mut self, bytes: &[u8]) -> bool {
        // The blank line may have begun in the last two bytes of the previous call.
        let from = self.searched.saturating_sub(2);
        self.searched = bytes.len();
        let rest = bytes.get(from..).unwrap_or_default();
        let ends = |at: usize| matches!(rest.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..]));
        let due = bytes.len() > MAX_HEAD_BYTES
            || bytes.len() >= self.read.saturating_mul(2).max(1)
            || memchr::memchr_iter(b'\n', rest).any(ends);
        if due {
            self.read = bytes.len();
        }
        due
    }
}

/// Returns parser settings that tolerate folded values and blanks before a colon. Neither changes the meaning of a
/// header field that the gateway reads.
fn lenient_config() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    config
}

/// Returns the value of the first field with this name in a complete head; `None` if there is none, or if the head is
/// malformed.
#[must_use]
pub fn header_value<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    // Most of the fields that are looked up are absent, and this search takes a tenth of the time of parsing the head.
    let starts_field = |line: usize| {
        let field = head.get(line..).and_then(|line| line.get(..name.len()));
        field.is_some_and(|field| field.eq_ignore_ascii_case(name.as_bytes()))
    };
    if !memchr::memchr_iter(b'\n', head).any(|end| starts_field(end + 1)) {
        return None;
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut answer = httparse::Response::new(&mut []);
    lenient_config().parse_response_with_uninit_headers(&mut answer, head, &mut fields).ok()?;
    answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// Fields that determine the framing.
#[derive(Default)]
struct FramingFields {
    length: Option<u64>,
    is_chunked: bool,
    closes_connection: bool,
    keeps_alive: bool,
}

impl FramingFields {
    fn field(&mut self, name: &str, value: &[u8]) -> Result<(), MalformedMessage> {
        if name.eq_ignore_ascii_case("content-length") {
            for length in list_items(value) {
                let length = parse_length(length).ok_or(MalformedMessage("its length is not a number"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(MalformedMessage("it has two lengths"));
                }
                self.length = Some(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.is_chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(MalformedMessage("its body has an unexpected transfer coding"));
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes_connection |= list_items(value).any(|token| token.eq_ignore_ascii_case(b"close"));
            self.keeps_alive |= list_items(value).any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
        }
        Ok(())
    }
}

/// Returns the elements of a comma-separated list.
fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a number of one to nineteen digits; `None` for any other value.
fn parse_length(digits: &[u8]) -> Option<u64> {
    let sound = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
