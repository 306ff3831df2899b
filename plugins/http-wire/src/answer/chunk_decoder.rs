//! Decoder that removes the chunk framing from a body that arrives in pieces.

use super::MalformedMessage;
use crate::http1_request::{is_control_except_tab, is_token};
use bytes::{Bytes, BytesMut};

/// Maximum length of a line with a chunk size and its extensions, or of a trailer, in bytes without its CR LF.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024;
/// Maximum number of digits of a chunk size, leading zeros included. Some other parsers have this limit too, and
/// others overflow on longer numbers.
const MAX_SIZE_DIGITS: usize = 15;
/// Maximum bytes of all trailers.
pub(super) const MAX_TRAILER_BYTES: usize = 16 * 1024;

/// Decoder of a chunked body.
#[derive(Debug, Default)]
pub struct ChunkDecoder {
    state: ChunkState,
    /// Length of the trailers read so far, in bytes.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// State before a line with the size of a chunk.
    #[default]
    Size,
    /// State inside a chunk that has this many bytes left.
    Data(u64),
    /// State after the data of a chunk, before its line end.
    AfterData,
    /// State after the last chunk (of size 0): trailers or the empty line at the end follow.
    Trailers,
    Complete,
}

/// Result of one decoding step.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkStep {
    /// Decoded part of the body.
    Data(Bytes),
    /// More bytes are needed for a result.
    Incomplete,
    /// End of the body; remaining bytes in the buffer do not belong to it.
    End,
}

impl ChunkDecoder {
    /// Decodes the next part of the body, and removes its bytes and its framing from the front of the buffer.
    ///
    /// # Errors
    /// Returns the violated rule of RFC 9112 §7.1, or an error if a line or the trailers exceed their size limit;
    /// after an error, further bytes cannot be interpreted.
    pub fn decode_next(&mut self, buffer: &mut BytesMut) -> Result<ChunkStep, MalformedMessage> {
        loop {
            match self.state {
                ChunkState::Size => match take_line(buffer)? {
                    Some(size) => {
                        self.state = match parse_chunk_size(&size)? {
                            0 => ChunkState::Trailers,
                            length => ChunkState::Data(length),
                        }
                    }
                    None => return Ok(ChunkStep::Incomplete),
                },
                ChunkState::Data(_) if buffer.is_empty() => return Ok(ChunkStep::Incomplete),
                ChunkState::Data(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    let left = left - here as u64;
                    self.state = if left == 0 { ChunkState::AfterData } else { ChunkState::Data(left) };
                    return Ok(ChunkStep::Data(buffer.split_to(here).freeze()));
                }
                ChunkState::AfterData => match take_line(buffer)? {
                    Some(end) if end.is_empty() => self.state = ChunkState::Size,
                    Some(_) => return Err(MalformedMessage("a chunk is longer than its size")),
                    None => return Ok(ChunkStep::Incomplete),
                },
                ChunkState::Trailers => match take_line(buffer)? {
                    Some(end) if end.is_empty() => self.state = ChunkState::Complete,
                    Some(trailer) if !is_field_line(&trailer) => {
                        return Err(MalformedMessage("a trailer is invalid"));
                    }
                    Some(trailer) => {
                        self.trailers += trailer.len();
                        if self.trailers > MAX_TRAILER_BYTES {
                            return Err(MalformedMessage("its trailers are too long"));
                        }
                    }
                    None => return Ok(ChunkStep::Incomplete),
                },
                ChunkState::Complete => return Ok(ChunkStep::End),
            }
        }
    }
}

/// Removes the next line from the buffer and returns it without its line end; `None` while the end has not arrived.
fn take_line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, MalformedMessage> {
    let Some(end) = memchr::memchr(b'\n', buffer) else {
        let long = buffer.len() > MAX_LINE_BYTES + b"\r".len();
        return if long { Err(MalformedMessage("a line of its chunks is too long")) } else { Ok(None) };
    };
    if end > MAX_LINE_BYTES + b"\r".len() {
        return Err(MalformedMessage("a line of its chunks is too long"));
    }
    let mut line = buffer.split_to(end + 1);
    if end == 0 || line.get(end - 1) != Some(&b'\r') {
        return Err(MalformedMessage("a line of its chunks ends without CR LF"));
    }
    line.truncate(end - 1);
    // Other parsers may interpret a control character as the end of a line.
    if line.iter().any(|byte| is_control_except_tab(*byte)) {
        return Err(MalformedMessage("a line of its chunks holds a control character"));
    }
    Ok(Some(line))
}

/// Returns true if a line is a name, a colon and a value (RFC 9112 §5). Trailers have this form too.
pub(super) fn is_field_line(line: &[u8]) -> bool {
    let name = memchr::memchr(b':', line).and_then(|colon| line.get(..colon));
    name.is_some_and(is_token)
}

/// Parses the length of a chunk: hexadecimal digits, optionally followed by blanks, and by extensions, which are
/// ignored. Blanks before the digits are refused, because other parsers may read another length there.
pub(super) fn parse_chunk_size(line: &[u8]) -> Result<u64, MalformedMessage> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    if digits.is_empty() {
        return Err(MalformedMessage("a chunk has no size"));
    }
    if digits.len() > MAX_SIZE_DIGITS {
        return Err(MalformedMessage("a chunk's size has more than 15 digits"));
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let value =
            char::from(*digit).to_digit(16).ok_or(MalformedMessage("a chunk's size is not a number"))?;
        Ok(sum << 4 | u64::from(value))
    })
}
