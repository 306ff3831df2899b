//! Validation of top-level scalar members, the same in all dialects.

use crate::body::RootObject;
use crate::limits::RequestLimits;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;

/// Names of members that are numbers, each with its lowest and its highest value.
pub(crate) type NumberRanges = &'static [(&'static str, f64, f64)];
/// Names of members that are integers, each with its lowest and its highest value.
pub(crate) type IntegerRanges = &'static [(&'static str, i64, i64)];

/// Validates the scalar members of a dialect.
pub(crate) fn validate_scalars(
    top: &RootObject<'_>,
    numbers: NumberRanges,
    integers: IntegerRanges,
    booleans: &[&str],
) -> Result<(), ApiError> {
    for (name, low, high) in numbers {
        top.get(name)
            .map(|value| read::read_bounded_number(value, &top.member_path(name), *low, *high))
            .transpose()?;
    }
    for (name, low, high) in integers {
        top.get(name)
            .map(|value| read::read_bounded_integer(value, &top.member_path(name), *low, *high))
            .transpose()?;
    }
    for name in booleans {
        read::read_optional_bool(top.get(name), &top.member_path(name))?;
    }
    Ok(())
}

/// Reads `model`, unescaped; returns `default` if the request has no `model`.
pub(crate) fn read_model_or_default(
    top: &RootObject<'_>,
    default: Option<&str>,
) -> Result<Box<str>, ApiError> {
    match default {
        Some(default) if top.get("model").is_none() => Ok(default.into()),
        _ => read_model(top),
    }
}

/// Reads `model`, unescaped.
pub(crate) fn read_model(top: &RootObject<'_>) -> Result<Box<str>, ApiError> {
    Ok(read::require_name_member(top.get("model"), &top.member_path("model"), "the name of a model")?
        .text()
        .into())
}

/// Reads a boolean, false by default.
pub(crate) fn read_bool_or_false(top: &RootObject<'_>, name: &str) -> Result<bool, ApiError> {
    Ok(read::read_optional_bool(top.get(name), &top.member_path(name))?.unwrap_or(false))
}

/// Reads a cap on tokens, at least 1. Returns `None` for no cap: if the member is absent, or -1, which clients of
/// llama.cpp and others send, or -2 in `num_predict`, which means up to the end of the context window.
pub(crate) fn read_token_cap(top: &RootObject<'_>, name: &str) -> Result<Option<u64>, ApiError> {
    if top.get(name).is_some_and(|value| value.raw() == "-1" || name == "num_predict" && value.raw() == "-2")
    {
        return Ok(None);
    }
    read_token_count(top, name, 1)
}

/// Reads a number of tokens, at least `low`; returns `None` if the member is absent.
pub(crate) fn read_token_count(top: &RootObject<'_>, name: &str, low: i64) -> Result<Option<u64>, ApiError> {
    let Some(value) = top.get(name) else { return Ok(None) };
    let count = read::read_bounded_integer(value, &top.member_path(name), low, i64::MAX)?;
    Ok(u64::try_from(count).ok())
}

/// Returns the keyword of `words` that an optional member equals; `None` if it is absent.
pub(crate) fn read_optional_keyword(
    top: &RootObject<'_>,
    name: &str,
    words: &[&'static str],
) -> Result<Option<&'static str>, ApiError> {
    top.get(name).map(|value| read::read_keyword(value, &top.member_path(name), words)).transpose()
}

/// Validates `logit_bias`; returns true if it has entries.
pub(crate) fn has_logit_bias(top: &RootObject<'_>) -> Result<bool, ApiError> {
    let path = top.member_path("logit_bias");
    let Some(bias) = top.get("logit_bias") else { return Ok(false) };
    read::check_object(bias, &path)?;
    let (keys, values): (Vec<JsonValue<'_>>, Vec<JsonValue<'_>>) = bias.members().unzip();
    for value in values {
        read::read_bounded_number(value, &path, -100.0, 100.0).map_err(|_| {
            path.invalid_error("expected an object of token ids and numbers from -100 to 100")
        })?;
    }
    read::check_unique_keys(&keys).map_err(|_| path.invalid_error("a key occurs more than once"))?;
    Ok(!keys.is_empty())
}

/// Reads stop sequences: an array of strings or, if `or_string` is true, also a single string.
pub(crate) fn read_stop_sequences(
    top: &RootObject<'_>,
    name: &str,
    or_string: bool,
    limits: &RequestLimits,
) -> Result<Vec<String>, ApiError> {
    let path = top.member_path(name);
    let Some(value) = top.get(name) else { return Ok(Vec::new()) };
    if or_string && value.is_string() {
        return Ok(vec![stop_sequence(value, &path, limits)?]);
    }
    if !value.is_array() {
        let expected = if or_string { "a string or an array of strings" } else { "an array of strings" };
        return Err(path.unexpected_type_error(expected, value.kind()));
    }
    let mut stop = Vec::new();
    for (index, item) in value.items().enumerate() {
        if index >= limits.max_stop {
            return Err(
                path.invalid_error(format_args!("expected at most {} stop sequences", limits.max_stop))
            );
        }
        stop.push(stop_sequence(item, &path.item(index), limits)?);
    }
    Ok(stop)
}

fn stop_sequence(
    value: JsonValue<'_>,
    path: &crate::field_path::FieldPath<'_>,
    limits: &RequestLimits,
) -> Result<String, ApiError> {
    let text = read::require_non_empty_string(value, path)?.text();
    if text.len() > limits.max_stop_bytes {
        return Err(path.invalid_error(format_args!("expected at most {} bytes", limits.max_stop_bytes)));
    }
    Ok(text.into_owned())
}
