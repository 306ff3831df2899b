//! Byte alphabet: byte-level tokenizers write each byte of a token as one letter.
//!
//! Guarantees: each byte has exactly one letter. A printable Latin-1 byte is written as itself, other bytes as letters
//! from U+0100 on.

/// Returns the byte that a letter stands for.
pub(super) fn decode_letter(letter: char) -> Option<u8> {
    let code = letter as u32;
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// Returns the bytes of a token that is written in the byte alphabet.
pub(super) fn decode_token(token: &str) -> Option<Vec<u8>> {
    token.chars().map(decode_letter).collect()
}

#[cfg(test)]
mod tests {
    use super::decode_letter;

    #[test]
    fn each_byte_has_one_letter() {
        let mut bytes: Vec<u8> = (0..0x144).filter_map(char::from_u32).filter_map(decode_letter).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(decode_letter('Ġ'), Some(b' '));
        assert_eq!(decode_letter('Ċ'), Some(b'\n'));
    }
}
