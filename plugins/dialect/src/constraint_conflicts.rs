//! Conflicts between constraints on the output: a request may state several, but an engine takes only one at a time.
//! Equal constraints do not conflict. Short ones are compared as parsed JSON, so that white space and the order of
//! members do not matter; long ones are compared by their bytes.

use crate::json_cursor;
use crate::structured_output::{
    self, ANY_OBJECT_SCHEMA, STRUCTURED_OUTPUTS_MEMBER, STRUCTURED_OUTPUTS_OPTIONS,
};
use penstock_core::{ApiError, AttemptTarget, InferenceRequest};
use serde_json::Value;

/// Maximum size of each of two values that are parsed to compare them, in bytes. Parsed JSON takes up to 40 times the
/// memory of its text, and each candidate repeats the comparison.
const MAX_PARSED_BYTES: usize = 64 << 10;

/// Engine parameters that constrain the whole output: a schema, a pattern, a choice or a grammar.
pub(crate) const OUTPUT_CONSTRAINTS: [&str; 12] = [
    "ebnf",
    "grammar",
    "guided_choice",
    "guided_decoding_params",
    "guided_grammar",
    "guided_json",
    "guided_json_object",
    "guided_regex",
    "json_schema",
    "regex",
    "structural_tag",
    STRUCTURED_OUTPUTS_MEMBER,
];

/// Returns true if a member must not be written, because the offer gets the response format in another member than
/// `response_format`. The members are all constraints on the output: [`check_single_constraint`] refuses those that
/// differ from the response format.
pub(crate) fn is_replaced_by_format(target: &AttemptTarget<'_>, name: &str) -> bool {
    OUTPUT_CONSTRAINTS.contains(&name) && structured_output::replaces_response_format(target)
}

/// Checks that the request has no other constraint on the output than the response format at `path`, which the offer
/// gets in another member. `schema` is the schema of the response format; `None` if the format allows any object. A
/// member with the same schema is no other constraint.
///
/// # Errors
/// Returns `Unsupported` with `path`.
pub(crate) fn check_single_constraint(
    ask: &InferenceRequest,
    schema: Option<&[u8]>,
    path: &str,
) -> Result<(), ApiError> {
    let schema = schema.unwrap_or(ANY_OBJECT_SCHEMA);
    let conflicts = |name: &&str| {
        structured_output::requested_value(ask, name)
            .is_some_and(|value| !requests_only_schema(name, value, schema))
    };
    match OUTPUT_CONSTRAINTS.iter().any(conflicts) {
        true => Err(several_constraints_error(path)),
        false => Ok(()),
    }
}

/// Returns the error of a constraint in addition to a different one.
pub(crate) fn several_constraints_error(path: &str) -> ApiError {
    ApiError::unsupported(path, "This model takes one constraint on its output at a time.")
}

/// Returns true if the value of an engine parameter requests nothing but an output of this schema.
fn requests_only_schema(name: &str, value: &[u8], schema: &[u8]) -> bool {
    // Each schema is compared with the previous one, because equality is transitive.
    let mut previous = schema;
    let mut is_equal_to_previous = |next| is_same_schema(std::mem::replace(&mut previous, next), next);
    match name {
        "guided_json" | "json_schema" => is_equal_to_previous(value),
        "guided_json_object" => value == b"true" && is_equal_to_previous(ANY_OBJECT_SCHEMA),
        STRUCTURED_OUTPUTS_MEMBER if json_cursor::is_object(value) => {
            json_cursor::members(value).all(|(key, value)| match &*key {
                _ if has_no_effect(&key, value) => true,
                "json" => is_equal_to_previous(value),
                "json_object" => is_equal_to_previous(ANY_OBJECT_SCHEMA),
                _ => false,
            })
        }
        _ => false,
    }
}

/// Returns true if a member of `structured_outputs` constrains nothing.
pub(crate) fn has_no_effect(key: &str, value: &[u8]) -> bool {
    matches!(value, b"null" | b"false") || STRUCTURED_OUTPUTS_OPTIONS.contains(&key)
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
