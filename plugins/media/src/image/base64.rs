//! Base64 in the variants that providers write: with or without padding, with line breaks, or in a data URL.

use ::base64::Engine as _;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Number of base64 characters that identify the format of an image.
const START: usize = 24;

/// Decodes the base64 of an image; `None` if it is invalid or empty.
#[must_use]
pub fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = if text.iter().any(u8::is_ascii_whitespace) {
        let dense: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        LENIENT.decode(dense)
    } else {
        LENIENT.decode(text)
    };
    bytes.ok().filter(|bytes| !bytes.is_empty())
}

/// Decodes the first bytes of canonical base64, enough to identify a format.
pub(super) fn decode_base64_prefix(text: &[u8]) -> Vec<u8> {
    text.get(..START.min(text.len())).and_then(|start| LENIENT.decode(start).ok()).unwrap_or_default()
}

/// Encodes base64 with padding, as clients expect it.
#[must_use]
pub fn encode_base64(bytes: &[u8]) -> Bytes {
    Bytes::from(LENIENT.encode(bytes))
}

/// Returns the data after the head of a data URL; other text unchanged.
pub(super) fn data_url_payload(text: Bytes) -> Bytes {
    if !text.starts_with(b"data:") {
        return text;
    }
    let head = text.iter().take(256).position(|byte| *byte == b',').map_or(0, |comma| comma + 1);
    text.slice(head..)
}

/// Returns true for standard base64 with padding and without line breaks, which every client's decoder accepts.
pub(super) fn is_canonical(text: &[u8]) -> bool {
    let padding = text.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let data = text.get(..text.len() - padding).unwrap_or_default();
    let may = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !data.is_empty() && text.len().is_multiple_of(4) && data.iter().all(may)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_writing_gives_the_same_bytes() {
        for text in ["aGVsbG8h", "aGVs\nbG8h\r\n", " aGVsbG8h "] {
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), Some(&b"hello!"[..]), "{text}");
        }
        assert_eq!(decode_base64(b"aGVsbG8").as_deref(), Some(&b"hello"[..]));
        assert_eq!(decode_base64(b"aGVsbG8=").as_deref(), Some(&b"hello"[..]));
        assert_eq!(data_url_payload(Bytes::from_static(b"data:image/png;base64,aGVs")), "aGVs");
        for invalid in ["", "a", "a\u{e9}", "a-_b", "{}"] {
            assert_eq!(decode_base64(invalid.as_bytes()), None, "{invalid}");
        }
    }

    #[test]
    fn only_valid_messages_pass_unchanged() {
        assert!(is_canonical(b"aGVsbG8=") && is_canonical(b"aGVsbG8h"));
        for repairable in [&b""[..], b"aGVsbG8", b"aGVs\nbG8", b"====", b"aGV-bG8_"] {
            assert!(!is_canonical(repairable));
        }
    }
}
