//! Reasoning in the form that stateless clients send back (`encrypted_content` of the responses dialect).
//!
//! The form is a version, a checksum and the text in base64url. It is not encrypted, because the client has seen the
//! text. The checksum distinguishes the gateway's own values from those of other vendors, which no model behind the
//! gateway can read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Start of every sealed value, with the version of the form.
const PREFIX: &str = "psr1_";
/// Length of the checksum, in bytes.
const CHECKSUM_BYTES: usize = 4;

/// Returns a reasoning text in sealed form: prefix, then checksum and text in base64url.
#[must_use]
pub fn encode_opaque_reasoning(text: &str) -> String {
    let mut bytes = Vec::with_capacity(CHECKSUM_BYTES + text.len());
    bytes.extend_from_slice(&crc32c::crc32c(text.as_bytes()).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    let mut sealed = String::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
    sealed.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_string(&bytes, &mut sealed);
    sealed
}

/// Returns the reasoning text of a sealed value; `None` for a value that is damaged or of another origin.
#[must_use]
pub fn decode_opaque_reasoning(sealed: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(PREFIX)?).ok()?;
    let (checksum, text) = bytes.split_at_checked(CHECKSUM_BYTES)?;
    let is_intact = checksum == crc32c::crc32c(text).to_be_bytes();
    std::str::from_utf8(text).ok().filter(|_| is_intact).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_text_opens_again() {
        for text in ["", "Think.", "Zürich \u{1F600}\n\"quoted\""] {
            assert_eq!(decode_opaque_reasoning(&encode_opaque_reasoning(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn values_of_other_origin_and_damaged_ones_do_not_open() {
        for other in ["", "psr1_", "psr1_AA", "gAAAAABo", "psr1_AAAAAAAA", "psr1_!!!!"] {
            assert_eq!(decode_opaque_reasoning(other), None, "{other}");
        }
        let sealed = encode_opaque_reasoning("Think about it.");
        for at in PREFIX.len()..sealed.len() {
            let mut damaged = sealed.clone().into_bytes();
            if let Some(byte) = damaged.get_mut(at) {
                *byte = if *byte == b'A' { b'B' } else { b'A' };
            }
            assert_eq!(
                String::from_utf8(damaged).ok().and_then(|text| decode_opaque_reasoning(&text)),
                None,
                "{at}"
            );
        }
    }
}
