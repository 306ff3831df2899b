//! Parser of HTTP/2 frame headers (RFC 9113 §4.1) in a byte stream that arrives in arbitrary pieces. Payloads are
//! skipped.

/// Length of a frame header, in bytes.
const HEAD_BYTES: usize = 9;
/// Length of an error code, the payload of RST_STREAM (RFC 9113 §6.4), in bytes.
const CODE_BYTES: usize = 4;
/// Type of RST_STREAM.
const RST_STREAM: u8 = 3;
/// Length of the connection preface, which a client sends before its first frame (RFC 9113 §3.4), in bytes.
const PREFACE_BYTES: usize = 24;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes.
    pub length: u32,
    /// Frame type.
    pub kind: u8,
    /// Flags of the frame.
    pub flags: u8,
    /// Stream identifier; 0 means that the frame concerns the whole connection.
    pub stream: u32,
    /// Error code of RST_STREAM; `None` for other frames.
    pub error_code: Option<u32>,
}

/// Parser of the frame headers in one direction of a connection.
#[derive(Debug, Default)]
pub struct FrameHeaderParser {
    /// Number of bytes to skip before the next header.
    skip: usize,
    /// Bytes of the current header, and of the error code after it.
    head: [u8; HEAD_BYTES + CODE_BYTES],
    filled: usize,
}

impl FrameHeaderParser {
    /// Returns a parser for the bytes of a client, which start with the preface.
    #[must_use]
    pub fn for_client_bytes() -> Self {
        Self { skip: PREFACE_BYTES, ..Self::default() }
    }

    /// Returns a parser for the bytes of a server.
    #[must_use]
    pub fn for_server_bytes() -> Self {
        Self::default()
    }

    /// Parses the next bytes, and calls `tell` for each complete frame header; that of RST_STREAM includes its error
    /// code.
    pub fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(FrameHeader)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            let Some((first, rest)) = bytes.split_first() else { return };
            bytes = rest;
            if let Some(byte) = self.head.get_mut(self.filled) {
                *byte = *first;
            }
            self.filled += 1;
            let [a, b, c, kind, flags, s0, s1, s2, s3, code @ ..] = self.head;
            let length = u32::from_be_bytes([0, a, b, c]);
            let has_code = kind == RST_STREAM && length as usize == CODE_BYTES;
            let complete = if has_code { HEAD_BYTES + CODE_BYTES } else { HEAD_BYTES };
            if self.filled >= HEAD_BYTES && self.filled == complete {
                self.filled = 0;
                self.skip = if has_code { 0 } else { length as usize };
                // The first bit of a stream id is reserved and ignored.
                let stream = u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1);
                let error_code = has_code.then(|| u32::from_be_bytes(code));
                tell(FrameHeader { length, kind, flags, stream, error_code });
            }
        }
    }

    /// Returns true if the bytes so far end with a complete frame.
    #[must_use]
    pub const fn is_at_frame_end(&self) -> bool {
        self.skip == 0 && self.filled == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_the_same_however_the_bytes_are_cut() {
        let frames =
            [(0, 1, 3, &b"data"[..]), (4, 0, 0, b""), (3, 0, 0x8000_0005, b"1234"), (0x42, 255, 7, b"x")];
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        for (kind, flags, stream, payload) in frames {
            let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
            bytes.extend([a, b, c, kind, flags]);
            bytes.extend(u32::to_be_bytes(stream));
            bytes.extend(payload);
        }
        let expected = frames.map(|(kind, flags, stream, payload)| FrameHeader {
            length: payload.len() as u32,
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            error_code: (kind == RST_STREAM).then_some(0x3132_3334),
        });
        for cut in 1..=bytes.len() {
            let (mut heads, mut found) = (FrameHeaderParser::for_client_bytes(), Vec::new());
            bytes.chunks(cut).for_each(|piece| heads.push(piece, |head| found.push(head)));
            assert_eq!(found, expected, "{cut}");
            assert!(heads.is_at_frame_end());
        }
    }
}
