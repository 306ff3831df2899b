//! Detection of inline media in the strings of a request. Encoded data is not compared with an error message.

/// Maximum bytes of a string that is always treated as text.
const MAX_SHORT_TEXT_BYTES: usize = 4096;
/// Divisor of the minimum share: in encoded data, at least 1/16 of the bytes are capital letters, 1/16 small letters
/// and 1/16 digits. Text without blanks, such as a table, a list of hashes or words joined by hyphens, has fewer of one
/// of them.
const MIN_CLASS_DIVISOR: usize = 16;

/// Returns true if the body of a JSON string is long base64 data, with or without the head of a `data:` URL.
pub(super) fn is_inline_media(inside: &[u8]) -> bool {
    if inside.len() <= MAX_SHORT_TEXT_BYTES {
        return false;
    }
    let declared = data_url_body(inside);
    let data = declared.unwrap_or(inside);
    if !is_base64_alphabet(data) {
        return false;
    }
    let is_common = |class: fn(&u8) -> bool| {
        data.iter().filter(|byte| class(byte)).count() >= data.len() / MIN_CLASS_DIVISOR
    };
    declared.is_some()
        || is_common(u8::is_ascii_uppercase)
            && is_common(u8::is_ascii_lowercase)
            && is_common(u8::is_ascii_digit)
}

/// Returns the data of a `data:` URL that declares base64.
fn data_url_body(inside: &[u8]) -> Option<&[u8]> {
    let rest = inside.strip_prefix(b"data:")?;
    let comma = memchr::memchr(b',', rest.get(..MAX_URL_HEAD_BYTES.min(rest.len()))?)?;
    rest.get(..comma)?.ends_with(b";base64").then(|| rest.get(comma + 1..).unwrap_or_default())
}

/// Maximum bytes of the head of a `data:` URL after `data:`: a media type with parameters, and a comma.
const MAX_URL_HEAD_BYTES: usize = 256;

/// Returns true if data has only bytes of base64, in either alphabet, and escaped line ends.
fn is_base64_alphabet(data: &[u8]) -> bool {
    let mut bytes = data.iter();
    while let Some(byte) = bytes.next() {
        let is_part = match byte {
            b'\\' => matches!(bytes.next(), Some(b'n' | b'r' | b'/')),
            b'+' | b'/' | b'-' | b'_' | b'=' => true,
            byte => byte.is_ascii_alphanumeric(),
        };
        if !is_part {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns base64 text that looks as random as a compressed file.
    fn encoded(length: usize) -> String {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut state = 1_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(alphabet.get((state >> 26) as usize).copied().unwrap_or(b'A'))
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn only_encoded_data_is_media() {
        let data = encoded(6000);
        for media in [
            data.clone(),
            data.replace('/', "\\/"),
            data.replace('+', "-").replace('/', "_"),
            format!("{data}\\n{data}=="),
            format!("data:image/png;base64,{data}"),
            format!("data:image/bmp;base64,{}", "A".repeat(6000)),
        ] {
            assert!(is_inline_media(media.as_bytes()), "{media:.60}");
        }
        for text in [
            encoded(4096),
            "Johansson,diabetes\\n".repeat(300),
            "\u{6211}\u{7684}\u{540d}\u{5b57}".repeat(500),
            "Johansson-diabetes_Meierhofer/hepatitis".repeat(200),
            "0f3a-99c1/77be".repeat(400),
            "{\\\"patient\\\":\\\"Johansson\\\"}".repeat(300),
            format!("data:text/plain,{}", "Johansson,diabetes".repeat(400)),
            format!("data:text/plain;base64,{}", "Johansson,diabetes".repeat(400)),
            format!("{data}, Johansson"),
        ] {
            assert!(!is_inline_media(text.as_bytes()), "{text:.60}");
        }
    }
}
