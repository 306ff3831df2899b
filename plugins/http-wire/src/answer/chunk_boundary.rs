//! Detection of the end of a chunked body, of a request or a response, in the bytes of a connection. The scanner
//! removes nothing: it returns how many of the bytes belong to the body, and rejects framing that two parsers could
//! interpret differently.

use super::MalformedMessage;
use super::chunk_decoder::{MAX_LINE_BYTES, MAX_TRAILER_BYTES, is_field_line, parse_chunk_size};
use crate::http1_request::is_control_except_tab;

/// Scanner of a chunked body that arrives in pieces.
#[derive(Debug, Default)]
pub struct ChunkedBodyScanner {
    state: BoundaryState,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Length of the trailers read so far, in bytes.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BoundaryState {
    /// State before a line with the size of a chunk.
    #[default]
    Size,
    /// State inside a chunk that has this many bytes left.
    Data(u64),
    /// State after the data of a chunk, before its line end.
    DataEnd,
    /// State after the last chunk (of size 0): trailers or the empty line at the end follow.
    Trailers,
    Complete,
}

impl ChunkedBodyScanner {
    /// Scans the next bytes and returns how many of them belong to the body: all of them until the body ends.
    ///
    /// # Errors
    /// Returns the violated rule of RFC 9112 §7.1, or an error if a line or the trailers exceed their size limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, MalformedMessage> {
        let mut at = 0;
        while at < bytes.len() && self.state != BoundaryState::Complete {
            let rest = bytes.get(at..).unwrap_or_default();
            if let BoundaryState::Data(left) = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let left = left - here as u64;
                self.state = if left == 0 { BoundaryState::DataEnd } else { BoundaryState::Data(left) };
                at += here;
                continue;
            }
            let end = memchr::memchr(b'\n', rest);
            let part = end.map_or(rest, |end| rest.get(..=end).unwrap_or_default());
            let most = if end.is_some() { MAX_LINE_BYTES + 2 } else { MAX_LINE_BYTES + 1 };
            if self.line.len() + part.len() > most {
                return Err(MalformedMessage("a line of its chunks is too long"));
            }
            at += part.len();
            if end.is_none() {
                self.line.extend_from_slice(part);
            } else if self.line.is_empty() {
                self.end_line(part)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.end_line(&line)?;
            }
        }
        Ok(at)
    }

    /// Returns true once the body has ended.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == BoundaryState::Complete
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), MalformedMessage> {
        let line =
            line.strip_suffix(b"\r\n").ok_or(MalformedMessage("a line of its chunks ends without CR LF"))?;
        if line.iter().any(|byte| is_control_except_tab(*byte)) {
            return Err(MalformedMessage("a line of its chunks holds a control character"));
        }
        self.state = match self.state {
            BoundaryState::Size => match parse_chunk_size(line)? {
                0 => BoundaryState::Trailers,
                length => BoundaryState::Data(length),
            },
            BoundaryState::DataEnd if line.is_empty() => BoundaryState::Size,
            BoundaryState::DataEnd => return Err(MalformedMessage("a chunk is longer than its size")),
            BoundaryState::Trailers if line.is_empty() => BoundaryState::Complete,
            BoundaryState::Trailers if !is_field_line(line) => {
                return Err(MalformedMessage("a trailer is invalid"));
            }
            BoundaryState::Trailers => {
                self.trailers += line.len();
                if self.trailers > MAX_TRAILER_BYTES {
                    return Err(MalformedMessage("its trailers are too long"));
                }
                BoundaryState::Trailers
            }
            state @ (BoundaryState::Data(_) | BoundaryState::Complete) => state,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const BODY: &[u8] = b"5;name=value\r\nhello\r\n0b\r\n, my\r\nworld\r\n0\r\nX-Sum: 1\r\n\r\n";

    #[test]
    fn finds_the_end_however_the_bytes_are_cut() {
        let all = [BODY, b"GET / HTTP/1.1\r\n"].concat();
        for first in 0..=all.len() {
            for piece in [1, 3, all.len()] {
                let mut boundary = ChunkedBodyScanner::default();
                let mut body = 0;
                let pieces = [&all[..first]].into_iter().chain(all[first..].chunks(piece));
                for piece in pieces {
                    body += boundary.push(piece).unwrap();
                }
                assert!(boundary.is_complete());
                assert_eq!(body, BODY.len(), "{first} {piece}");
            }
        }
    }

    #[test]
    fn refuses_ambiguous_framing() {
        let long = [b"1;".as_slice(), &vec![b'a'; MAX_LINE_BYTES], b"\r\n"].concat();
        for invalid in [
            &b"5\nhello\r\n"[..],
            b"5\r\nhello!\r\n",
            b"5 5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b"-1\r\n",
            b"\r\nhello\r\n",
            b"1\x00\r\na\r\n",
            b"0\r\nno field\r\n\r\n",
            b"0\r\n folded: yes\r\n\r\n",
            b"0\r\nname : value\r\n\r\n",
            b"ffffffffffffffff\r\n",
            &long,
        ] {
            for cut in [1, 2, invalid.len()] {
                let mut boundary = ChunkedBodyScanner::default();
                let pushed: Result<Vec<_>, _> =
                    invalid.chunks(cut).map(|piece| boundary.push(piece)).collect();
                assert!(pushed.is_err(), "{} in pieces of {cut}", invalid.escape_ascii());
            }
        }
    }
}
