//! Decoder of a chunked body that arrives in pieces.

use super::Malformed;
use crate::head::{control, is_token};
use bytes::{Bytes, BytesMut};

/// Maximum length of a line with a chunk size and its extensions, or of a trailer, in bytes.
pub(super) const LINE: usize = 4 * 1024;
/// Maximum bytes of all trailers.
pub(super) const TRAILERS: usize = 16 * 1024;

/// Decoder of a chunked body.
#[derive(Debug, Default)]
pub struct Chunks {
    at: At,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the size of a chunk.
    #[default]
    Size,
    /// In a chunk with this many bytes left.
    Data(u64),
    /// After a chunk, before the end of its line.
    Behind,
    /// After the last chunk.
    Trailers,
    Over,
}

/// Result of one decoding step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Part of the body.
    Data(Bytes),
    /// More bytes needed.
    More,
    /// End of the body; remaining bytes in the buffer do not belong to it.
    End,
}

impl Chunks {
    /// Decodes bytes from the front of the buffer.
    ///
    /// # Errors
    /// Returns the violated rule; the bytes after it cannot be interpreted.
    pub fn take(&mut self, buffer: &mut BytesMut) -> Result<Step, Malformed> {
        loop {
            match self.at {
                At::Size => match line(buffer)? {
                    Some(size) => {
                        self.at = match length(&size)? {
                            0 => At::Trailers,
                            length => At::Data(length),
                        }
                    }
                    None => return Ok(Step::More),
                },
                At::Data(_) if buffer.is_empty() => return Ok(Step::More),
                At::Data(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    let left = left - here as u64;
                    self.at = if left == 0 { At::Behind } else { At::Data(left) };
                    return Ok(Step::Data(buffer.split_to(here).freeze()));
                }
                At::Behind => match line(buffer)? {
                    Some(end) if end.is_empty() => self.at = At::Size,
                    Some(_) => return Err(Malformed("a chunk is longer than its size")),
                    None => return Ok(Step::More),
                },
                At::Trailers => match line(buffer)? {
                    Some(end) if end.is_empty() => self.at = At::Over,
                    Some(trailer) if !is_field(&trailer) => return Err(Malformed("a trailer is invalid")),
                    Some(trailer) => {
                        self.trailers += trailer.len();
                        if self.trailers > TRAILERS {
                            return Err(Malformed("its trailers are too long"));
                        }
                    }
                    None => return Ok(Step::More),
                },
                At::Over => return Ok(Step::End),
            }
        }
    }
}

/// Returns the next line without its end.
fn line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', buffer) else {
        let long = buffer.len() > LINE;
        return if long { Err(Malformed("a line of its chunks is too long")) } else { Ok(None) };
    };
    if end > LINE {
        return Err(Malformed("a line of its chunks is too long"));
    }
    let mut line = buffer.split_to(end + 1);
    if end == 0 || line.get(end - 1) != Some(&b'\r') {
        return Err(Malformed("a line of its chunks ends without CR LF"));
    }
    line.truncate(end - 1);
    // Other parsers may interpret a control character as the end of a line.
    if line.iter().any(|byte| control(*byte)) {
        return Err(Malformed("a line of its chunks holds a control character"));
    }
    Ok(Some(line))
}

/// True if a line is a name, a colon and a value (RFC 9112 §5), as trailers are too.
pub(super) fn is_field(line: &[u8]) -> bool {
    let name = memchr::memchr(b':', line).and_then(|colon| line.get(..colon));
    name.is_some_and(is_token)
}

/// Parses the length of a chunk: hexadecimal digits, optionally followed by extensions, which are ignored.
pub(super) fn length(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if digits.is_empty() || digits.len() > 15 {
        return Err(Malformed("a chunk has no size"));
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let value = char::from(*digit).to_digit(16).ok_or(Malformed("a chunk's size is not a number"))?;
        Ok(sum << 4 | u64::from(value))
    })
}
