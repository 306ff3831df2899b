//! Percent-decoding of the URL: IDs in the path, and query parameters.
//!
//! Guarantee: text that is not valid UTF-8 after decoding becomes empty, so that it matches nothing.

use penstock_core::percent;
use std::borrow::Cow;

/// Percent-decodes a part of a URL path; returns an empty text if the result is not valid UTF-8.
pub fn decode_segment(tail: &str) -> Cow<'_, str> {
    percent::decode(tail).unwrap_or_default()
}

/// Returns the names and values of a query; a name without `=` has an empty value.
pub fn query_parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let undone = |text| percent::decode_form(text).unwrap_or_default();
    percent::query_parameters(query).map(move |(name, value)| (undone(name), undone(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_decoded_once() {
        assert_eq!(decode_segment("org%2Fmodel:eco"), "org/model:eco");
        assert_eq!(decode_segment("org/model%253A"), "org/model%3A");
        assert_eq!(decode_segment("100%"), "100%");
        assert_eq!(decode_segment("a%+fb+c"), "a%+fb+c");
        assert_eq!(decode_segment("%ff"), "");
    }

    #[test]
    fn parameters_are_decoded_by_name_and_value() {
        let all: Vec<_> = query_parameters("a%5B%5D=b+c&d=%ff&e").collect();
        assert_eq!(all, [("a[]".into(), "b c".into()), ("d".into(), "".into()), ("e".into(), "".into())]);
    }
}
