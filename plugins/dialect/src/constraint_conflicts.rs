//! Comparison of constraints on the output: a request may state several, but an engine takes only one at a time. Equal
//! constraints do not conflict. Short ones are compared as parsed JSON, so that white space and the order of members do
//! not matter; long ones are compared by their bytes.

use crate::json_cursor;
use penstock_core::ApiError;
use serde_json::Value;

/// Maximum size of each of two values that are parsed to compare them, in bytes. Parsed JSON takes up to 40 times the
/// memory of its text, and each candidate repeats the comparison.
const MAX_PARSED_BYTES: usize = 64 << 10;

/// Returns the error of two constraints that differ, with the path `param`.
pub(crate) fn conflict_error(param: String, one: &str, other: &str) -> ApiError {
    let sentence = match one == other {
        true => format!("`{one}` has two values; a model takes one constraint on its output at a time."),
        false => {
            format!("`{one}` and `{other}` differ; a model takes one constraint on its output at a time.")
        }
    };
    ApiError::unsupported(param, sentence)
}

/// Returns true if two JSON values are equal. Values that are longer than [`MAX_PARSED_BYTES`], or that the parser
/// refuses, such as very deep ones, are equal only if their bytes are.
pub(crate) fn is_same_value(one: &[u8], other: &[u8]) -> bool {
    let parse = |value: &[u8]| serde_json::from_slice::<Value>(value).ok();
    one == other || are_parseable(one, other) && parse(one).is_some_and(|one| parse(other) == Some(one))
}

const fn are_parseable(one: &[u8], other: &[u8]) -> bool {
    one.len() <= MAX_PARSED_BYTES && other.len() <= MAX_PARSED_BYTES
}

/// Returns true if two JSON schemas are equal. Each is an object, or a string that contains one.
pub(crate) fn is_same_schema(one: &[u8], other: &[u8]) -> bool {
    let is_text = |value: &[u8]| value.first() == Some(&b'"');
    if !is_text(one) && !is_text(other) || !are_parseable(one, other) {
        return is_same_value(one, other);
    }
    let inner = |value| json_cursor::parse_string(value).map(|text| text.into_owned().into_bytes());
    let (one_text, other_text) = (inner(one), inner(other));
    is_same_value(one_text.as_deref().unwrap_or(one), other_text.as_deref().unwrap_or(other))
}
