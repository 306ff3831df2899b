//! Readers of typed values. Each error names the field, the expected type and the actual type.

use crate::field_path::{FieldPath, quotable_name};
use penstock_core::ApiError;
use penstock_json_scan::tape::{JsonValue, ValueKind};
use std::borrow::Cow;
use std::fmt;

/// Returns the values of the members of an object that have these names, in the order of the names. `null` counts as
/// absent, other members are ignored, and a repeated key is an error.
pub(crate) fn read_named_members<'d, const N: usize>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
    names: [&'static str; N],
) -> Result<[Option<JsonValue<'d>>; N], ApiError> {
    if !value.is_object() {
        return Err(path.unexpected_type_error("an object", value.kind()));
    }
    let mut found = [None; N];
    let mut others = Vec::new();
    for (key, member) in value.members() {
        let text = key.text();
        match names.iter().zip(&mut found).find(|(name, _)| *text == ***name) {
            None => others.push(key),
            Some((name, Some(_))) => return Err(duplicate_key(path, name)),
            Some((_, slot)) => *slot = Some(member),
        }
    }
    if others.len() > 1 {
        check_unique_keys(&others).map_err(|key| duplicate_key_error(path, &key))?;
    }
    Ok(found.map(|member| member.filter(|member| !member.is_null())))
}

/// Checks that no two keys of an object have the same text.
pub(crate) fn check_no_duplicate_keys(object: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
    let keys: Vec<JsonValue<'_>> = object.members().map(|(key, _)| key).collect();
    check_unique_keys(&keys).map_err(|key| duplicate_key_error(path, &key))
}

fn duplicate_key_error(path: &FieldPath<'_>, key: &JsonValue<'_>) -> ApiError {
    match quotable_name(key) {
        Some(name) => duplicate_key(path, &name),
        None => path.invalid_error("a key occurs more than once"),
    }
}

fn duplicate_key(path: &FieldPath<'_>, name: &str) -> ApiError {
    path.member(name).invalid_error("the key occurs more than once")
}

/// Checks that no two keys have the same text; returns the repeated key as error.
pub(crate) fn check_unique_keys<'d>(keys: &[JsonValue<'d>]) -> Result<(), JsonValue<'d>> {
    if keys.len() < 12 {
        for (count, key) in keys.iter().enumerate() {
            let text = key.text();
            if keys.iter().take(count).any(|earlier| earlier.equals_text(&text)) {
                return Err(*key);
            }
        }
        return Ok(());
    }
    let mut sorted: Vec<(Cow<'_, str>, JsonValue<'d>)> = keys.iter().map(|key| (key.text(), *key)).collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs.find(|((one, _), (other, _))| one == other).map_or(Ok(()), |(_, (_, key))| Err(*key))
}

/// Returns a member, or an error if it is absent.
pub(crate) fn require_member<'d>(
    member: Option<JsonValue<'d>>,
    path: &FieldPath<'_>,
    expected: impl fmt::Display,
) -> Result<JsonValue<'d>, ApiError> {
    member.ok_or_else(|| path.missing_error(expected))
}

/// Returns the value if it is a string, otherwise an error.
pub(crate) fn require_string<'d>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
) -> Result<JsonValue<'d>, ApiError> {
    if value.is_string() { Ok(value) } else { Err(path.unexpected_type_error("a string", value.kind())) }
}

/// Returns true if a string contains arguments of a call. Engines express a call without arguments in several ways,
/// such as by the text `null`; then the result is false.
pub(crate) fn has_call_arguments(value: JsonValue<'_>) -> bool {
    const MAX_EMPTY_BYTES: usize = 64;
    let is_empty = || matches!(value.text().trim(), "" | "null" | r#""""#);
    !value.is_blank() && (value.string_bytes().len() > MAX_EMPTY_BYTES || !is_empty())
}

/// Returns the value if it is a string that is not empty, otherwise an error.
pub(crate) fn require_non_empty_string<'d>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
) -> Result<JsonValue<'d>, ApiError> {
    match require_string(value, path)?.string_bytes() {
        [] => Err(path.invalid_error("expected a string that is not empty")),
        _ => Ok(value),
    }
}

/// Returns a member that must be a string and must not be empty.
pub(crate) fn require_text_member<'d>(
    member: Option<JsonValue<'d>>,
    path: &FieldPath<'_>,
) -> Result<JsonValue<'d>, ApiError> {
    require_non_empty_string(require_member(member, path, "a string")?, path)
}

/// Maximum length of the name of a model or of a tool, in bytes of its text without escapes.
pub(crate) const MAX_NAME_BYTES: usize = 256;

/// Returns a member that must be the name of a model or a tool. If the member is absent, the error message describes
/// it by `expected`.
pub(crate) fn require_name_member<'d>(
    member: Option<JsonValue<'d>>,
    path: &FieldPath<'_>,
    expected: impl fmt::Display,
) -> Result<JsonValue<'d>, ApiError> {
    let value = require_non_empty_string(require_member(member, path, expected)?, path)?;
    match value.text().len() {
        ..=MAX_NAME_BYTES => Ok(value),
        _ => Err(path.invalid_error(format_args!("expected a string of at most {MAX_NAME_BYTES} bytes"))),
    }
}

/// Returns the value if it is an array, otherwise an error.
pub(crate) fn require_array<'d>(
    value: JsonValue<'d>,
    path: &FieldPath<'_>,
) -> Result<JsonValue<'d>, ApiError> {
    if value.is_array() { Ok(value) } else { Err(path.unexpected_type_error("an array", value.kind())) }
}

/// Checks that a value is an object; its members are not checked.
pub(crate) fn check_object(value: JsonValue<'_>, path: &FieldPath<'_>) -> Result<(), ApiError> {
    if value.is_object() { Ok(()) } else { Err(path.unexpected_type_error("an object", value.kind())) }
}

/// Reads a boolean.
pub(crate) fn read_bool(value: JsonValue<'_>, path: &FieldPath<'_>) -> Result<bool, ApiError> {
    match value.kind() {
        ValueKind::True => Ok(true),
        ValueKind::False => Ok(false),
        other => Err(path.unexpected_type_error("a boolean", other)),
    }
}

/// Reads an optional boolean.
pub(crate) fn read_optional_bool(
    member: Option<JsonValue<'_>>,
    path: &FieldPath<'_>,
) -> Result<Option<bool>, ApiError> {
    member.map(|value| read_bool(value, path)).transpose()
}

/// Returns the keyword of `words` that the string `value` equals.
pub(crate) fn read_keyword(
    value: JsonValue<'_>,
    path: &FieldPath<'_>,
    words: &[&'static str],
) -> Result<&'static str, ApiError> {
    if let Some(word) = words.iter().find(|word| value.equals_text(word)) {
        return Ok(word);
    }
    let expected = QuotedAlternatives(words);
    Err(if value.is_string() {
        path.unexpected_string_error(expected)
    } else {
        path.unexpected_type_error(expected, value.kind())
    })
}

/// Keywords formatted as `"a", "b" or "c"`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedAlternatives<'w>(pub(crate) &'w [&'static str]);

impl fmt::Display for QuotedAlternatives<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.0.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(out, "{before}\"{word}\"")?;
        }
        Ok(())
    }
}

/// Reads an integer within inclusive bounds.
pub(crate) fn read_bounded_integer(
    value: JsonValue<'_>,
    path: &FieldPath<'_>,
    low: i64,
    high: i64,
) -> Result<i64, ApiError> {
    let expected = || match (low, high) {
        (i64::MIN, i64::MAX) => "an integer of at most 64 bits".to_owned(),
        (low, i64::MAX) => format!("an integer of at least {low}"),
        (low, high) => format!("an integer from {low} to {high}"),
    };
    if value.kind() != ValueKind::Number {
        return Err(path.unexpected_type_error(expected(), value.kind()));
    }
    if value.raw().bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return Err(
            path.invalid_error(format_args!("expected {}, got a number that is no integer", expected()))
        );
    }
    match value.raw().parse::<i64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(path.invalid_error(format_args!("expected {}, got a number out of range", expected()))),
    }
}

/// Reads a number within inclusive bounds.
pub(crate) fn read_bounded_number(
    value: JsonValue<'_>,
    path: &FieldPath<'_>,
    low: f64,
    high: f64,
) -> Result<f64, ApiError> {
    if value.kind() != ValueKind::Number {
        return Err(path.unexpected_type_error(format_args!("a number from {low} to {high}"), value.kind()));
    }
    match value.raw().parse::<f64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(path.invalid_error(format_args!(
            "expected a number from {low} to {high}, got a number out of range"
        ))),
    }
}
