//! Percent encoding of URLs and headers, and parsing of query parameters.
//!
//! Guarantees: `%` with two hexadecimal digits, in either case, is one byte and is decoded once; any other `%` stays
//! unchanged; a text without percent codes is returned without a copy. The crate `percent-encoding` does the work;
//! bytes that are not UTF-8 are an error.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;

/// Bytes that are encoded in a path segment: all but letters, digits and the unreserved marks of RFC 3986.
pub const PATH_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'~');

/// Bytes that are encoded in an extended parameter of a header (`attr-char` of RFC 8187).
pub const HEADER_PARAMETER: &AsciiSet = &PATH_SEGMENT
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'^')
    .remove(b'`')
    .remove(b'|');

/// Decodes percent codes; `None` if the result is not UTF-8.
#[must_use]
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// Decodes one name or value of a query or of an `application/x-www-form-urlencoded` body, where a plus is a blank;
/// `None` if the result is not UTF-8.
#[must_use]
pub fn decode_form(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return decode(text);
    }
    decode(&text.replace('+', " ")).map(|decoded| Cow::Owned(decoded.into_owned()))
}

/// Splits a query (without `?`) into names and values, which the caller decodes with [`decode_form`]. A parameter
/// without `=` has an empty value; empty parameters are left out.
pub fn query_parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, "")))
}

/// Encodes the bytes that are in `set`, and all bytes that are not ASCII.
#[must_use]
pub fn encode(text: &str, set: &'static AsciiSet) -> String {
    utf8_percent_encode(text, set).to_string()
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
            assert_eq!((decode(none), decode_form(none)), (None, None), "{none}");
        }
    }

    #[test]
    fn a_plus_of_a_query_is_a_blank_and_its_code_a_plus() {
        for (text, plain) in
            [("a+b", "a b"), ("a%2Bb", "a+b"), ("%+f", "% f"), ("%4+", "%4 "), ("%2b+%2B", "+ +"), ("x", "x")]
        {
            assert_eq!(decode_form(text).as_deref(), Some(plain), "{text}");
        }
    }

    #[test]
    fn text_without_codes_is_not_copied() {
        assert!(matches!(decode("a+b"), Some(Cow::Borrowed("a+b"))));
        assert!(matches!(decode_form("plain"), Some(Cow::Borrowed("plain"))));
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
        assert_eq!(encode("a b/\u{e9}~", PATH_SEGMENT), "a%20b%2F%C3%A9~");
        for text in ["100% + 1&=\n\0", "\u{4e2d}", ""] {
            assert_eq!(decode_form(&encode(text, NON_ALPHANUMERIC)).as_deref(), Some(text));
        }
    }
}
