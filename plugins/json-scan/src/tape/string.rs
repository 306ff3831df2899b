//! Scanner of JSON strings in blocks of 64 bytes. A string is validated without a copy; the result is its end and
//! whether it has escapes.

use super::JsonError;
use crate::block::{
    BACKSLASH_VECTOR, LAST_CONTROL_VECTOR, QUOTE_VECTOR, has_must_escape_bytes, is_base64, lane_mask,
    load_vectors, must_escape_lanes,
};
use std::ops::Range;
use wide::u8x16;

/// Number of consecutive bytes without quotes, backslashes and control characters after which the scanner checks if
/// the string is base64.
const PLAIN_BEFORE_BASE64: usize = 4096;
/// Maximum number of bytes between the last complete block of base64 and the closing quote.
pub(super) const MAX_BASE64_TAIL_BYTES: usize = 64;

/// Result of validating a JSON string: the position of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringEnd {
    /// Position of the closing quote.
    pub quote: usize,
    /// True if the string has escapes.
    pub escaped: bool,
    /// Position from which all bytes are base64 characters, except for the last [`MAX_BASE64_TAIL_BYTES`]; the
    /// position of the quote if this is unknown.
    pub base64_from: usize,
}

impl StringEnd {
    const fn new(quote: usize, escaped: bool) -> Self {
        Self { quote, escaped, base64_from: quote }
    }

    /// Records a range of base64 characters, if it lasts until the end of the string.
    fn with_base64(self, letters: Option<Range<usize>>) -> Self {
        let letters = letters.filter(|letters| self.quote - letters.end <= MAX_BASE64_TAIL_BYTES);
        Self { base64_from: letters.map_or(self.quote, |letters| letters.start), ..self }
    }
}

/// Validates a string from the byte after its opening quote.
pub fn string_end(bytes: &[u8], from: usize) -> Result<StringEnd, JsonError> {
    let mut at = from;
    // Keys and short values end in the first 16 bytes, before the block loop.
    if let Some(start) = bytes.get(from..).and_then(<[u8]>::first_chunk::<16>) {
        let first = must_escape_lanes(u8x16::new(*start)).to_bitmask().trailing_zeros() as usize;
        match start.get(first) {
            Some(b'"') => return Ok(StringEnd::new(from + first, false)),
            Some(_) => at += first,
            None => at += 16,
        }
    }
    let mut escaped = false;
    let (mut plain_from, mut base64) = (at, None);
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<64>) {
        let quarters = load_vectors(block);
        // Most blocks of a prompt have no special bytes, so one test covers all four quarters of a block.
        if !has_must_escape_bytes(quarters) {
            at += 64;
            if at - plain_from >= PLAIN_BEFORE_BASE64 {
                let end = base64_end(bytes, at);
                base64 = (end > at).then_some(at..end).or(base64);
                (at, plain_from) = (end, end);
            }
            continue;
        }
        plain_from = at + 64;
        let quotes = lane_mask(quarters, |bytes| bytes.simd_eq(QUOTE_VECTOR));
        let backslashes = lane_mask(quarters, |bytes| bytes.simd_eq(BACKSLASH_VECTOR));
        let controls = lane_mask(quarters, |bytes| bytes.min(LAST_CONTROL_VECTOR).simd_eq(bytes));
        let second = if backslashes == 0 { 0 } else { escaped_by(backslashes) };
        // Bytes after the closing quote do not belong to the string.
        let end = quotes & !second;
        let inside = end.wrapping_sub(1) & !end;
        let mut broken = controls & inside;
        let mut next = at + 64;
        if backslashes & inside != 0 {
            escaped = true;
            let simple = quotes | backslashes | lane_mask(quarters, is_simple);
            let unicode = lane_mask(quarters, |bytes| bytes.simd_eq(U)) & second & inside;
            broken |= second & inside & !simple & !unicode;
            // The last byte starts an escape, which is validated with the next block.
            if backslashes & !second & inside & LAST != 0 {
                next = at + 63;
            }
            if unicode != 0 && broken == 0 {
                next = next.max(unicode_escapes_end(bytes, at, unicode)?);
            }
        }
        if broken != 0 {
            return scan_bytewise(bytes, at, escaped);
        }
        if end != 0 {
            let end = StringEnd::new(at + end.trailing_zeros() as usize, escaped);
            return Ok(end.with_base64(base64));
        }
        at = next;
    }
    scan_bytewise(bytes, at, escaped).map(|end| end.with_base64(base64))
}

const U: u8x16 = u8x16::new([b'u'; 16]);
/// Bit that stands for the last byte of a block in a mask of 64 bits.
const LAST: u64 = 1 << 63;

/// Returns the position after the blocks of 64 bytes from `offset` that have only base64 characters. These characters
/// need no escape, so the pass that looks for the ends of strings validates images too.
fn base64_end(bytes: &[u8], offset: usize) -> usize {
    let blocks = bytes.get(offset..).unwrap_or_default().as_chunks::<64>().0;
    offset + blocks.iter().take_while(|block| is_base64(block)).count() * 64
}

/// Returns the mask of the bytes that may follow a backslash, besides `"`, `\` and `u`.
#[inline]
fn is_simple(bytes: u8x16) -> u8x16 {
    let is = |byte: u8| bytes.simd_eq(u8x16::new([byte; 16]));
    is(b'n') | is(b't') | is(b'r') | is(b'/') | is(b'b') | is(b'f')
}

/// Returns the mask of the bytes that a preceding backslash escapes. The first byte of the block is not escaped; in a
/// run of backslashes every second is. The borrow of a subtraction passes through each run, so that its end shows
/// whether the length is odd (as in simdjson).
#[inline]
fn escaped_by(backslashes: u64) -> u64 {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let series = (backslashes << 1 | ODD).wrapping_sub(backslashes);
    (series ^ ODD) ^ backslashes
}

/// Validates the `\uXXXX` escapes of the block at `offset`. Each bit of `letters` marks the `u` of an escape. Returns
/// the end of the last escape.
fn unicode_escapes_end(bytes: &[u8], offset: usize, mut letters: u64) -> Result<usize, JsonError> {
    let mut end = offset;
    while letters != 0 {
        let from = offset + letters.trailing_zeros() as usize - 1;
        end = from + unicode_run_length(bytes, from)?;
        letters &= u64::MAX.checked_shl((end - offset) as u32).unwrap_or(0);
    }
    Ok(end)
}

const CONTROL: &str = "a control character inside a string (it must be escaped)";

/// Validates a string one byte at a time: in the last bytes of a document, or to find the position of an error.
fn scan_bytewise(bytes: &[u8], from: usize, mut escaped: bool) -> Result<StringEnd, JsonError> {
    let mut at = from;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(StringEnd::new(at, escaped)),
            Some(b'\\') => {
                escaped = true;
                at += escape_length(bytes, at)?;
            }
            Some(..0x20) => return Err(JsonError::syntax(at, CONTROL)),
            Some(_) => at += 1,
            None => return Err(JsonError::syntax(bytes.len(), "the end inside a string")),
        }
    }
}

/// Returns the length in bytes of the escape at `offset`; for `\uXXXX`, including directly following escapes of this
/// kind.
#[inline]
fn escape_length(bytes: &[u8], offset: usize) -> Result<usize, JsonError> {
    match bytes.get(offset + 1) {
        Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'/' | b'b' | b'f') => Ok(2),
        Some(b'u') => unicode_run_length(bytes, offset),
        Some(_) => Err(JsonError::syntax(offset, "an unknown escape inside a string")),
        None => Err(JsonError::syntax(bytes.len(), "the end inside a string")),
    }
}

/// Returns the number of bytes of a run of `\uXXXX` escapes: non-Latin text is often completely escaped.
fn unicode_run_length(bytes: &[u8], from: usize) -> Result<usize, JsonError> {
    let mut at = from;
    loop {
        let unit = parse_escaped_code_unit(bytes, at)
            .ok_or(JsonError::syntax(at, "\\u without four hexadecimal digits"))?;
        at += 6;
        if unit & 0xf800 == 0xd800 {
            let low = parse_escaped_code_unit(bytes, at).filter(|low| (0xdc00..0xe000).contains(low));
            if unit >= 0xdc00 || low.is_none() {
                return Err(JsonError::unrepresentable(at - 6, "half of a surrogate pair inside a string"));
            }
            at += 6;
        }
        if !matches!(bytes.get(at..at + 2), Some(b"\\u")) {
            return Ok(at - from);
        }
    }
}

/// Returns the UTF-16 code unit of a `\uXXXX` escape at `offset`; `None` for other bytes.
#[inline]
pub fn parse_escaped_code_unit(bytes: &[u8], offset: usize) -> Option<u16> {
    let &[b'\\', b'u', a, b, c, d] = bytes.get(offset..)?.first_chunk::<6>()? else { return None };
    let [a, b, c, d] = [a, b, c, d].map(|digit| HEX.get(usize::from(digit)).copied().unwrap_or(0xff));
    // An invalid hexadecimal digit has one of the upper four bits set in the table `HEX`.
    ((a | b | c | d) & 0xf0 == 0)
        .then(|| u16::from(a) << 12 | u16::from(b) << 8 | u16::from(c) << 4 | u16::from(d))
}

static HEX: [u8; 256] = hex_table();

#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const fn hex_table() -> [u8; 256] {
    let mut table = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
}
