//! Percent encoding of URLs and headers, and parsing of query parameters.
//!
//! Guarantees: `%` with two hexadecimal digits, in either case, is one byte and is decoded once; any other `%` is kept
//! literally; a text without percent codes is returned without a copy.

use crate::hex;
use std::borrow::Cow;

/// Decodes percent codes; `None` if the result is not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('%') { decode_bytes(text, b'+').map(Cow::Owned) } else { Some(Cow::Borrowed(text)) }
}

/// Decodes a name or value of a query, where a plus is a blank; `None` if the result is not UTF-8.
#[must_use]
pub fn form(text: &str) -> Option<Cow<'_, str>> {
    if text.contains(['%', '+']) {
        decode_bytes(text, b' ').map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(text))
    }
}

fn decode_bytes(text: &str, plus: u8) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = match (first, after.split_first_chunk::<2>()) {
            (b'%', Some((digits, behind))) => hex::decode_byte(*digits).map(|byte| (byte, behind)),
            _ => None,
        };
        let plain = if *first == b'+' { plus } else { *first };
        let (byte, behind) = code.unwrap_or((plain, after));
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// Splits a query (without `?`) into undecoded names and values; a parameter without `=` has an empty value.
pub fn query_parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Encodes all bytes except ASCII letters, digits and those in `plain`.
#[must_use]
pub fn encode(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend(hex::encode_byte(byte).map(|digit| char::from(digit.to_ascii_uppercase())));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_decoded_once_and_other_text_stays() {
        for (text, plain) in [
            ("", ""),
            ("org%2Fmodel:eco", "org/model:eco"),
            ("org%2fmodel", "org/model"),
            ("%e4%B8%aD", "\u{4e2d}"),
            ("a%253A", "a%3A"),
            ("%00", "\0"),
            ("%", "%"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%%41", "%A"),
            ("%4%41", "%4A"),
            ("%zz", "%zz"),
            ("%4z", "%4z"),
            ("%+f", "%+f"),
            ("%-1", "%-1"),
            ("% f", "% f"),
            ("%\u{e9}", "%\u{e9}"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(plain), "{text}");
        }
        for none in ["%ff", "%C3", "a%80"] {
            assert_eq!((decode(none), form(none)), (None, None), "{none}");
        }
    }

    #[test]
    fn a_plus_of_a_query_is_a_blank_and_its_code_a_plus() {
        for (text, plain) in
            [("a+b", "a b"), ("a%2Bb", "a+b"), ("%+f", "% f"), ("%4+", "%4 "), ("%2b+%2B", "+ +"), ("x", "x")]
        {
            assert_eq!(form(text).as_deref(), Some(plain), "{text}");
        }
    }

    #[test]
    fn text_without_codes_is_not_copied() {
        assert!(matches!(decode("a+b"), Some(Cow::Borrowed("a+b"))));
        assert!(matches!(form("plain"), Some(Cow::Borrowed("plain"))));
    }

    #[test]
    fn a_query_is_names_and_values() {
        let all: Vec<_> = query_parameters("a=1&&b&c=&=d&e=f=g&h%3D=%26").collect();
        let expected = [("a", "1"), ("b", ""), ("c", ""), ("", "d"), ("e", "f=g"), ("h%3D", "%26")];
        assert_eq!(all, expected);
        assert_eq!(query_parameters("").count(), 0);
    }

    #[test]
    fn encoded_text_is_decoded_to_the_original() {
        assert_eq!(encode("a b/\u{e9}~", b"~"), "a%20b%2F%C3%A9~");
        for text in ["100% + 1&=\n\0", "\u{4e2d}", ""] {
            assert_eq!(form(&encode(text, b"")).as_deref(), Some(text));
        }
    }
}
