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
        top.get(name).map(|value| read::number(value, &top.path(name), *low, *high)).transpose()?;
    }
    for (name, low, high) in integers {
        top.get(name).map(|value| read::integer(value, &top.path(name), *low, *high)).transpose()?;
    }
    for name in booleans {
        read::optional_bool(top.get(name), &top.path(name))?;
    }
    Ok(())
}

/// Reads `model`, unescaped; returns `default` if the request has no `model`.
pub(crate) fn model_or_default(top: &RootObject<'_>, default: Option<&str>) -> Result<Box<str>, ApiError> {
    match default {
        Some(default) if top.get("model").is_none() => Ok(default.into()),
        _ => model(top),
    }
}

/// Reads `model`, unescaped.
pub(crate) fn model(top: &RootObject<'_>) -> Result<Box<str>, ApiError> {
    Ok(read::required_name(top.get("model"), &top.path("model"), "the name of a model")?.text().into())
}

/// Reads a boolean, false by default.
pub(crate) fn bool_or_false(top: &RootObject<'_>, name: &str) -> Result<bool, ApiError> {
    Ok(read::optional_bool(top.get(name), &top.path(name))?.unwrap_or(false))
}

/// Reads a cap on tokens, at least 1. Clients of llama.cpp and others send -1 for no cap, and in `num_predict` -2 for
/// the window.
pub(crate) fn token_cap(top: &RootObject<'_>, name: &str) -> Result<Option<u64>, ApiError> {
    if top.get(name).is_some_and(|value| value.raw() == "-1" || name == "num_predict" && value.raw() == "-2")
    {
        return Ok(None);
    }
    token_count(top, name, 1)
}

/// Reads a number of tokens, at least `low`.
pub(crate) fn token_count(top: &RootObject<'_>, name: &str, low: i64) -> Result<Option<u64>, ApiError> {
    let Some(value) = top.get(name) else { return Ok(None) };
    let count = read::integer(value, &top.path(name), low, i64::MAX)?;
    Ok(u64::try_from(count).ok())
}

/// Returns the keyword of `words` that an optional member equals; `None` if it is absent.
pub(crate) fn keyword(
    top: &RootObject<'_>,
    name: &str,
    words: &[&'static str],
) -> Result<Option<&'static str>, ApiError> {
    top.get(name).map(|value| read::one_of(value, &top.path(name), words)).transpose()
}

/// Validates `logit_bias`; returns true if it has entries.
pub(crate) fn has_logit_bias(top: &RootObject<'_>) -> Result<bool, ApiError> {
    let path = top.path("logit_bias");
    let Some(bias) = top.get("logit_bias") else { return Ok(false) };
    read::check_object(bias, &path)?;
    let (keys, values): (Vec<JsonValue<'_>>, Vec<JsonValue<'_>>) = bias.members().unzip();
    for value in values {
        read::number(value, &path, -100.0, 100.0)
            .map_err(|_| path.invalid("expected an object of token ids and numbers from -100 to 100"))?;
    }
    read::check_unique(&keys).map_err(|_| path.invalid("a key occurs more than once"))?;
    Ok(!keys.is_empty())
}

/// Reads stop sequences: an array of strings or, if `or_string` is true, also a single string.
pub(crate) fn stop_sequences(
    top: &RootObject<'_>,
    name: &str,
    or_string: bool,
    limits: &RequestLimits,
) -> Result<Vec<String>, ApiError> {
    let path = top.path(name);
    let Some(value) = top.get(name) else { return Ok(Vec::new()) };
    if or_string && value.is_string() {
        return Ok(vec![stop_sequence(value, &path, limits)?]);
    }
    if !value.is_array() {
        let expected = if or_string { "a string or an array of strings" } else { "an array of strings" };
        return Err(path.unexpected_type(expected, value.kind()));
    }
    let mut stop = Vec::new();
    for (index, item) in value.items().enumerate() {
        if index >= limits.max_stop {
            return Err(path.invalid(format_args!("expected at most {} stop sequences", limits.max_stop)));
        }
        stop.push(stop_sequence(item, &path.index(index), limits)?);
    }
    Ok(stop)
}

fn stop_sequence(
    value: JsonValue<'_>,
    at: &crate::field_path::FieldPath<'_>,
    limits: &RequestLimits,
) -> Result<String, ApiError> {
    let text = read::non_empty_string(value, at)?.text();
    if text.len() > limits.max_stop_bytes {
        return Err(at.invalid(format_args!("expected at most {} bytes", limits.max_stop_bytes)));
    }
    Ok(text.into_owned())
}
