//! Hexadecimal encoding and decoding of bytes.
//!
//! Encoding writes lower-case digits; decoding reads both cases and rejects signs, blanks and surplus digits.

/// Encodes a byte as two digits.
#[must_use]
pub const fn encode_byte(byte: u8) -> [u8; 2] {
    [nibble_digit(byte >> 4), nibble_digit(byte & 15)]
}

const fn nibble_digit(nibble: u8) -> u8 {
    match nibble {
        0..=9 => b'0' + nibble,
        _ => b'a' + nibble - 10,
    }
}

/// Encodes bytes as a string.
pub fn encode<'b>(bytes: impl IntoIterator<Item = &'b u8>) -> String {
    let bytes = bytes.into_iter();
    let mut text = String::with_capacity(bytes.size_hint().0 * 2);
    for byte in bytes {
        text.extend(encode_byte(*byte).map(char::from));
    }
    text
}

/// Decodes two digits to a byte; `None` if one of them is not hexadecimal.
#[must_use]
pub fn decode_byte([high, low]: [u8; 2]) -> Option<u8> {
    // Digits are decoded one by one, because `u8::from_str_radix` would accept a sign such as `+f`.
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    Some(value(high)? << 4 | value(low)?)
}

/// Decodes `N` bytes; `None` if there are not exactly two digits for each, or one of them is not hexadecimal.
#[must_use]
pub fn decode<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != N {
        return None;
    }
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(pairs) {
        *to = decode_byte(*from)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read_as_it_is_written_in_either_case() {
        for of in 0..=255 {
            let digits = encode_byte(of);
            assert_eq!(digits.map(char::from), <[char; 2]>::try_from(two(of)).unwrap_or_default());
            assert_eq!(decode_byte(digits), Some(of));
            assert_eq!(decode_byte(digits.map(|digit| digit.to_ascii_uppercase())), Some(of));
        }
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        assert_eq!(encode([1, 2, 3].iter().take(2)), "0102");
        assert_eq!(decode(b"000aFf"), Some([0, 10, 255]));
    }

    fn two(byte: u8) -> Vec<char> {
        format!("{byte:02x}").chars().collect()
    }

    #[test]
    fn invalid_digits_are_rejected() {
        for none in [b"+f", b"-1", b" f", b"f ", b"zz", b"0x", b"0g", b"\xff0"] {
            assert_eq!(decode_byte(*none), None, "{none:?}");
            assert_eq!(decode::<1>(none), None, "{none:?}");
        }
        for none in ["", "0", "000", "0000", "\u{660}"] {
            assert_eq!(decode::<1>(none.as_bytes()), None, "{none}");
        }
    }
}
