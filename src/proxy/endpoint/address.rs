//! Percent-decoding of the URL: IDs in the path, and query parameters.
//!
//! Guarantee: text that is not valid UTF-8 after decoding becomes empty, so that it matches nothing.

use penstock_contract::percent;
use std::borrow::Cow;

/// Decodes a part of a path.
pub fn decoded(tail: &str) -> Cow<'_, str> {
    percent::decoded(tail).unwrap_or_default()
}

/// Names and values of a query; a name without `=` has an empty value.
pub fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let undone = |text| percent::form(text).unwrap_or_default();
    percent::parameters(query).map(move |(name, value)| (undone(name), undone(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_decoded_once() {
        assert_eq!(decoded("org%2Fmodel:eco"), "org/model:eco");
        assert_eq!(decoded("org/model%253A"), "org/model%3A");
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("a%+fb+c"), "a%+fb+c");
        assert_eq!(decoded("%ff"), "");
    }

    #[test]
    fn parameters_are_decoded_by_name_and_value() {
        let all: Vec<_> = parameters("a%5B%5D=b+c&d=%ff&e").collect();
        assert_eq!(all, [("a[]".into(), "b c".into()), ("d".into(), "".into()), ("e".into(), "".into())]);
    }
}
