//! A provider's answer over HTTP/1.1: its head, and where its body ends. Nothing is
//! built for what nobody asks: a head stays the bytes it came in, and fields are
//! looked up in them.
//!
//! Rules: RFC 9112 §6.3 and §7.1. What is ambiguous is either refused or ends the
//! connection with this answer, so that its bytes are never read as another's.

mod boundary;
mod chunks;
#[cfg(test)]
mod tests;

pub use boundary::ChunkBoundary;
pub use chunks::{Chunks, Step};

/// Most bytes of a head.
pub const HEAD: usize = 64 * 1024;
/// Most fields of a head.
const FIELDS: usize = 128;

/// It is no HTTP/1.1 answer: why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes, none included.
    Length(u64),
    /// In chunks.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// What a head says of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, its blank line included.
    pub size: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Where the body ends.
    pub framing: Framing,
    /// The connection serves no other request.
    pub last: bool,
}

impl Head {
    /// Reads the head at the beginning of `bytes`; `None` while it is not whole. `bytes` are those of an answer to
    /// a request that is not HEAD.
    ///
    /// # Errors
    /// It is none, or it is over [`HEAD`] or 128 fields.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut answer = httparse::Response::new(&mut fields);
        let size = match lenient().parse_response(&mut answer, bytes) {
            Ok(httparse::Status::Complete(size)) if size <= HEAD => size,
            Ok(httparse::Status::Partial) if bytes.len() <= HEAD => return Ok(None),
            Ok(_) => return Err(Malformed("its head is too large")),
            Err(_) => return Err(Malformed("its head is none of HTTP/1.1")),
        };
        let status = answer.code.filter(|code| *code >= 100).ok_or(Malformed("it has no status"))?;
        let old = answer.version != Some(1);
        let mut told = Told::default();
        for field in answer.headers.iter() {
            told.field(field.name, field.value)?;
        }
        let framing = match (status, told.coded, told.length) {
            (101, ..) => return Err(Malformed("it changes the protocol, which nobody asked for")),
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

/// A search for the end of a head that comes in pieces. Reading it anew with each byte would cost the square of its
/// length: it is read when its blank line may be there, and whenever it has doubled, so that what is no head is refused
/// early.
#[derive(Debug, Default)]
pub struct HeadScan {
    /// Bytes that have been searched for a blank line.
    searched: usize,
    /// Bytes when it was last read.
    read: usize,
}

impl HeadScan {
    /// Whether [`Head::read`] may find something new in these bytes, which are those of the last call and what came
    /// since.
    pub fn is_due(&mut self, bytes: &[u8]) -> bool {
        // A blank line is the end of a line and at most two bytes before it.
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

/// What providers are forgiven: values that go on in another line and blanks before a colon, of which nothing that
/// is read here gets another meaning.
fn lenient() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    config
}

/// The value of the first field of this name in a whole head.
#[must_use]
pub fn field<'h>(head: &'h [u8], name: &str) -> Option<&'h [u8]> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    lenient().parse_response(&mut answer, head).ok()?;
    answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// What the fields say about the end.
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
                let length = number(length).ok_or(Malformed("its length is no number"))?;
                if self.length.is_some_and(|other| other != length) {
                    return Err(Malformed("it has two lengths"));
                }
                self.length = Some(length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if self.coded || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed("its body is coded in a way nobody asked for"));
            }
            self.coded = true;
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"close"));
            self.kept |= tokens(value).any(|token| token.eq_ignore_ascii_case(b"keep-alive"));
        }
        Ok(())
    }
}

/// The parts of a list.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Digits alone, at most nineteen of them.
fn number(digits: &[u8]) -> Option<u64> {
    let sound = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    sound.then(|| digits.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
