//! Detection of the end of a chunked body in the bytes of a connection. The scanner removes nothing: it returns how
//! many of the bytes belong to the body, and rejects framing that two parsers could interpret differently.

use super::Malformed;
use super::chunks::{LINE, TRAILERS, is_field, length};
use crate::head::control;

/// Scanner of a chunked body that arrives in pieces.
#[derive(Debug, Default)]
pub struct ChunkBoundary {
    state: State,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Bytes of the trailers so far.
    trailers: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the size of a chunk.
    #[default]
    Size,
    /// In a chunk with this many bytes left.
    Data(u64),
    /// After a chunk, before the end of its line.
    DataEnd,
    /// After the last chunk.
    Trailers,
    Complete,
}

impl ChunkBoundary {
    /// Scans the next bytes and returns how many of them belong to the body: all, unless the body ends among them.
    ///
    /// # Errors
    /// The framing breaks a rule of RFC 9112 §7.1, or a line or the trailers exceed their cap.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Complete {
            let rest = bytes.get(at..).unwrap_or_default();
            if let State::Data(left) = self.state {
                let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                let left = left - here as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                at += here;
                continue;
            }
            let end = memchr::memchr(b'\n', rest);
            let part = end.map_or(rest, |end| rest.get(..=end).unwrap_or_default());
            if self.line.len() + part.len() > LINE + 2 {
                return Err(Malformed("a line of its chunks is too long"));
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
        self.state == State::Complete
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let line = line.strip_suffix(b"\r\n").ok_or(Malformed("a line of its chunks ends without CR LF"))?;
        if line.iter().any(|byte| control(*byte)) {
            return Err(Malformed("a line of its chunks holds a control character"));
        }
        self.state = match self.state {
            State::Size => match length(line)? {
                0 => State::Trailers,
                length => State::Data(length),
            },
            State::DataEnd if line.is_empty() => State::Size,
            State::DataEnd => return Err(Malformed("a chunk is longer than its size")),
            State::Trailers if line.is_empty() => State::Complete,
            State::Trailers if !is_field(line) => return Err(Malformed("a trailer is invalid")),
            State::Trailers => {
                self.trailers += line.len();
                if self.trailers > TRAILERS {
                    return Err(Malformed("its trailers are too long"));
                }
                State::Trailers
            }
            state @ (State::Data(_) | State::Complete) => state,
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
                let mut boundary = ChunkBoundary::default();
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
    fn refuses_framing_that_parsers_read_in_two_ways() {
        let long = [b"1;".as_slice(), &vec![b'a'; LINE], b"\r\n"].concat();
        for wrong in [
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
            for cut in [1, 2, wrong.len()] {
                let mut boundary = ChunkBoundary::default();
                let pushed: Result<Vec<_>, _> = wrong.chunks(cut).map(|piece| boundary.push(piece)).collect();
                assert!(pushed.is_err(), "{} in pieces of {cut}", wrong.escape_ascii());
            }
        }
    }
}
