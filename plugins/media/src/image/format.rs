//! Image format detection by the first bytes.

/// Content type of bytes of unknown format.
const UNKNOWN: &str = "application/octet-stream";

/// Returns true for an image of a known format by its first bytes: PNG, JPEG, WebP, GIF or AVIF.
#[must_use]
pub fn is_image(start: &[u8]) -> bool {
    content_type(start) != UNKNOWN
}

/// Returns the content type of an image, or the generic one if the format is unknown. Formats that may contain scripts,
/// such as SVG, are treated as unknown.
#[must_use]
pub fn content_type(image: &[u8]) -> &'static str {
    let at = |from: usize, magic: &[u8]| image.get(from..).is_some_and(|rest| rest.starts_with(magic));
    if at(0, b"\x89PNG\r\n\x1a\n") {
        "image/png"
    } else if at(0, &[0xff, 0xd8, 0xff]) {
        "image/jpeg"
    } else if at(0, b"RIFF") && at(8, b"WEBP") {
        "image/webp"
    } else if at(0, b"GIF8") {
        "image/gif"
    } else if at(4, b"ftypavif") {
        "image/avif"
    } else {
        UNKNOWN
    }
}
