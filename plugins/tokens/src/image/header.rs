//! Width and height from the first bytes of PNG, JPEG, GIF and WebP.
//!
//! Guarantees: no input causes a panic. Only the first bytes are decoded; a JPEG is decoded up to its frame header,
//! which may be at any offset.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Number of base64 characters that contain the header of every format except JPEG.
const MAX_HEADER_CHARS: usize = 64;
/// Number of base64 characters that contain the frame header of most JPEG files.
const USUAL_JPEG_CHARS: usize = 16 << 10;

/// Returns width and height in pixels of an image given as base64; `None` if the format is unknown, or if the header
/// is incomplete or invalid.
#[must_use]
pub fn base64_image_size(data: &str) -> Option<(u32, u32)> {
    let head = decode(data, MAX_HEADER_CHARS)?;
    if !is_jpeg(&head) {
        return image_size(&head);
    }
    image_size(&decode(data, USUAL_JPEG_CHARS)?).or_else(|| image_size(&decode(data, data.len())?))
}

/// Returns width and height in pixels of an image; `None` if the format is unknown, or if the header is incomplete or
/// invalid.
#[must_use]
pub fn image_size(image: &[u8]) -> Option<(u32, u32)> {
    if is_jpeg(image) {
        return jpeg(image);
    }
    png(image).or_else(|| gif(image)).or_else(|| webp(image))
}

fn is_jpeg(image: &[u8]) -> bool {
    image.starts_with(&[0xff, 0xd8])
}

fn decode(data: &str, characters: usize) -> Option<Vec<u8>> {
    let cut = characters.min(data.trim_end_matches('=').len());
    // Four base64 characters encode three bytes; a single character in an incomplete last group encodes no byte and
    // is cut off.
    let cut = if cut % 4 == 1 { cut - 1 } else { cut };
    let cut = if cut < characters { cut } else { cut - cut % 4 };
    STANDARD_NO_PAD.decode(data.get(..cut)?).ok()
}

fn be16(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from(u16::from_be_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?)))
}

fn le16(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?)))
}

fn be32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn le24(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(le16(bytes, offset)? | u32::from(*bytes.get(offset + 2)?) << 16)
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let header = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
    (header.get(4..8)? == b"IHDR").then_some((be32(header, 8)?, be32(header, 12)?))
}

fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let screen = bytes.strip_prefix(b"GIF87a").or_else(|| bytes.strip_prefix(b"GIF89a"))?;
    Some((le16(screen, 0)?, le16(screen, 2)?))
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    if bytes.get(..4)? != b"RIFF" || bytes.get(8..12)? != b"WEBP" {
        return None;
    }
    match bytes.get(12..16)? {
        b"VP8 " => Some((le16(bytes, 26)? & 0x3fff, le16(bytes, 28)? & 0x3fff)),
        b"VP8L" => {
            let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((le24(bytes, 24)? + 1, le24(bytes, 27)? + 1)),
        _ => None,
    }
}

fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Fill bytes, and JPEG markers without a body, are skipped.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Frame header of a JPEG with the size of the image. The excluded markers begin tables, not frames.
            0xc0..=0xcf if !matches!(bytes.get(at + 1), Some(0xc4 | 0xc8 | 0xcc)) => {
                return Some((be16(bytes, at + 7)?, be16(bytes, at + 5)?));
            }
            0xd9 | 0xda => return None,
            _ => at += 2 + be16(bytes, at + 2)?.max(2) as usize,
        }
    }
}
