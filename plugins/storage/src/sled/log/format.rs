//! Format of sled's log: segments of a fixed size, each with a header and messages, both with a CRC32.
//!
//! ```text
//! segment header   crc (4) | lsn (8) | lsn up to which the log was complete when the segment was started (8)
//! message          crc (4) | kind (1) | length | number of the segment | page id | body
//! ```
//!
//! The lengths without a figure are variable-length integers. The number of a segment is the lsn of its first byte
//! divided by the size of a segment. sled starts a new segment in a freed one without clearing it, so old messages may
//! follow the end of the log; they have a lower number.

use std::ops::RangeInclusive;

use super::super::handle::SEGMENT_BYTES;

/// Size of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 20;
/// Number of bytes at the end of a segment in which no message starts.
const RED_ZONE_BYTES: usize = 32;
/// Mask with which sled stores each lsn of a segment header.
const LSN_MASK: u64 = 0x7fff_ffff_ffff_ffff;
/// Size of the blocks in which zeros are skipped.
const ZERO_BLOCK: [u8; 4096] = [0; 4096];
/// Kind of a canceled message.
const CANCELED: u8 = 1;

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Reservation that was given up.
    Canceled,
    /// Padding after the last message of a segment.
    Cap,
    /// Start of an atomic batch, with the lsn of its last byte.
    Manifest,
    /// Removal of a page.
    Free,
    /// New contents of a page, or of the counter of ids, which is no page of rows.
    Replace(Body),
    /// Change of a page.
    Link(Body),
}

/// Place of the contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// In the log.
    Inline,
    /// In a file of the folder `blobs`, named after the lsn in the message.
    Blob,
}

impl MessageKind {
    const fn from_byte(byte: u8) -> Option<MessageKind> {
        Some(match byte {
            CANCELED => MessageKind::Canceled,
            2 => MessageKind::Cap,
            3 => MessageKind::Manifest,
            4 => MessageKind::Free,
            5 | 6 | 8 => MessageKind::Replace(Body::Inline),
            7 | 9 => MessageKind::Replace(Body::Blob),
            10 => MessageKind::Link(Body::Inline),
            11 => MessageKind::Link(Body::Blob),
            _ => return None,
        })
    }
}

/// Message with a matching checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) kind: MessageKind,
    /// Number of the segment that the message was written for.
    pub(crate) number: u64,
    pub(crate) page: u64,
    pub(crate) body: &'a [u8],
    /// Size of the whole message in bytes.
    pub(crate) len: usize,
}

/// Reader of the fields of a message or of a snapshot.
pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a variable-length integer.
    pub(crate) fn integer(&mut self) -> Option<u64> {
        let first = self.byte()?;
        Some(match first {
            0..=240 => u64::from(first),
            241..=248 => 240 + 256 * (u64::from(first) - 241) + u64::from(self.byte()?),
            249 => 2288 + 256 * u64::from(self.byte()?) + u64::from(self.byte()?),
            _ => {
                let bytes = self.bytes(usize::from(first) - 247)?;
                bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
        })
    }

    /// Reads an integer of 8 bytes.
    pub(crate) fn fixed_integer(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    /// Reads bytes with their length before them.
    pub(crate) fn sized_bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.integer()?;
        self.bytes(usize::try_from(len).ok()?)
    }
}

/// Segment header with a matching checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Number of the segment.
    pub(crate) number: u64,
    /// Lsn up to which the log was complete when the segment was started.
    pub(crate) stable_lsn: u64,
}

/// Returns the header of a segment; `None` if the segment is unused or its header is damaged.
pub(crate) fn parse_segment_header(segment: &[u8]) -> Option<SegmentHeader> {
    let header = segment.get(..SEGMENT_HEADER_BYTES)?;
    let (sum, rest) = header.split_first_chunk::<4>()?;
    if !u32::from_le_bytes(*sum) != crc32fast::hash(rest) {
        return None;
    }
    let mut fields = FieldReader(rest);
    let lsn = fields.fixed_integer()? ^ LSN_MASK;
    let stable = fields.fixed_integer()? ^ LSN_MASK;
    // The first segment stores -1.
    let stable_lsn = i64::from_le_bytes(stable.to_le_bytes()).max(0).unsigned_abs();
    lsn.is_multiple_of(SEGMENT_BYTES as u64)
        .then_some(SegmentHeader { number: lsn / SEGMENT_BYTES as u64, stable_lsn })
}

/// Encodes the header of the segment that starts at an lsn.
pub(crate) fn encode_segment_header(first_lsn: u64, stable_lsn: u64) -> Vec<u8> {
    let fields = [first_lsn ^ LSN_MASK, stable_lsn ^ LSN_MASK].map(u64::to_le_bytes).concat();
    [&(!crc32fast::hash(&fields)).to_le_bytes(), &*fields].concat()
}

/// Encodes an integer of variable length.
fn encode_integer(value: u64) -> Vec<u8> {
    let bytes = value.to_le_bytes();
    match value {
        0..=240 => bytes.into_iter().take(1).collect(),
        241..=2287 => (241 * 256 + value - 240).to_be_bytes().into_iter().skip(6).collect(),
        2288..=67823 => (249 * 65536 + value - 2288).to_be_bytes().into_iter().skip(5).collect(),
        _ => {
            let len = (3_u8..8).find(|len| value >> (8 * len) == 0).unwrap_or(8);
            [247 + len].into_iter().chain(bytes.into_iter().take(usize::from(len))).collect()
        }
    }
}

/// Encodes a message of `total` bytes in the segment `number` that changes no page. Empty if no message has this
/// length, which is so for a few bytes only.
pub(crate) fn encode_canceled_message(number: u64, total: usize) -> Vec<u8> {
    // Page ids of different lengths, because not every total is possible with one of them.
    for page in [0, 241, 2288] {
        let rest = [encode_integer(number), encode_integer(page)].concat();
        for len_bytes in 1..=5 {
            let Some(body) = total.checked_sub(5 + len_bytes + rest.len()) else { break };
            let len = encode_integer(body as u64);
            if len.len() == len_bytes {
                let header = [&[CANCELED], &*len, &rest].concat();
                let body = vec![0; body];
                let mut hasher = crc32fast::Hasher::new();
                hasher.update(&body);
                hasher.update(&header);
                return [&(!hasher.finalize()).to_le_bytes(), &*header, &body].concat();
            }
        }
    }
    Vec::new()
}

/// Returns the message at an offset of a segment if its checksum matches and its number is in the range.
pub(crate) fn parse_message<'a>(
    segment: &'a [u8],
    at: usize,
    numbers: &RangeInclusive<u64>,
) -> Option<Message<'a>> {
    let bytes = segment.get(at..)?;
    let (sum, rest) = bytes.split_first_chunk::<4>()?;
    let mut fields = FieldReader(rest);
    let kind = MessageKind::from_byte(fields.byte()?)?;
    let body_len = usize::try_from(fields.integer()?).ok()?;
    let number = fields.integer()?;
    if !numbers.contains(&number) {
        return None;
    }
    let page = fields.integer()?;
    let header_len = bytes.len() - fields.0.len();
    let body = fields.bytes(body_len)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body);
    hasher.update(bytes.get(4..header_len)?);
    (!u32::from_le_bytes(*sum) == hasher.finalize()).then_some(Message {
        kind,
        number,
        page,
        body,
        len: header_len + body_len,
    })
}

/// Returns the offset of the first message from `from` on whose number is in the range.
pub(crate) fn find_message(segment: &[u8], from: usize, numbers: &RangeInclusive<u64>) -> Option<usize> {
    let mut at = from;
    // The fifth byte is the kind of the message.
    while let Some(kinds) = segment.get(at + 4..) {
        if kinds.starts_with(&ZERO_BLOCK) {
            at += ZERO_BLOCK.len();
            continue;
        }
        let end = kinds.len().min(ZERO_BLOCK.len());
        let found = kinds.iter().take(end).enumerate().find_map(|(step, kind)| {
            let maybe = MessageKind::from_byte(*kind).is_some();
            (maybe && parse_message(segment, at + step, numbers).is_some()).then_some(at + step)
        });
        if found.is_some() || end == 0 {
            return found;
        }
        at += end;
    }
    None
}

/// Part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentItem<'a> {
    /// Message at an offset.
    Message(usize, Message<'a>),
    /// Bytes from an offset that are no message: the end of the log, or damage. `next` is the offset of the next
    /// message of the segment, if there is one.
    Tear {
        /// Offset of the first byte.
        at: usize,
        /// Offset of the next message.
        next: Option<usize>,
    },
}

/// Iterator over the messages of one segment, and over the bytes between them that are none.
pub(crate) struct SegmentItems<'a> {
    segment: &'a [u8],
    number: u64,
    /// Offset of the next item; `None` after the last one.
    at: Option<usize>,
}

impl<'a> SegmentItems<'a> {
    /// Iterates over the segment with the number `number`.
    pub(crate) const fn new(segment: &'a [u8], number: u64) -> SegmentItems<'a> {
        SegmentItems { segment, number, at: Some(SEGMENT_HEADER_BYTES) }
    }
}

impl<'a> Iterator for SegmentItems<'a> {
    type Item = SegmentItem<'a>;

    fn next(&mut self) -> Option<SegmentItem<'a>> {
        let at = self.at.take()?;
        let numbers = self.number..=self.number;
        match parse_message(self.segment, at, &numbers) {
            _ if at + RED_ZONE_BYTES > SEGMENT_BYTES => None,
            Some(Message { kind: MessageKind::Cap, .. }) => None,
            Some(message) => {
                self.at = Some(at + message.len);
                Some(SegmentItem::Message(at, message))
            }
            None if at + RED_ZONE_BYTES == SEGMENT_BYTES => None,
            None => {
                self.at = find_message(self.segment, at + 1, &numbers);
                Some(SegmentItem::Tear { at, next: self.at })
            }
        }
    }
}
