//! Validation of top-level scalar members, the same in both dialects.

use crate::body::Top;
use crate::limits::Limits;
use crate::read;
use penstock_contract::Refusal;

/// Numbers with their inclusive bounds.
pub(crate) type Numbers = &'static [(&'static str, f64, f64)];
/// Integers with their inclusive bounds.
pub(crate) type Integers = &'static [(&'static str, i64, i64)];

/// Validates the scalar members of a dialect.
pub(crate) fn prove(
    top: &Top<'_>,
    numbers: Numbers,
    integers: Integers,
    booleans: &[&str],
) -> Result<(), Refusal> {
    for (name, low, high) in numbers {
        top.get(name).map(|value| read::number(value, &top.path(name), *low, *high)).transpose()?;
    }
    for (name, low, high) in integers {
        top.get(name).map(|value| read::integer(value, &top.path(name), *low, *high)).transpose()?;
    }
    for name in booleans {
        read::flag(top.get(name), &top.path(name))?;
    }
    Ok(())
}

/// Maximum length of a model name, in bytes.
const MAX_MODEL: usize = 256;

/// Reads `model`, unescaped, with a default model.
pub(crate) fn model_or(top: &Top<'_>, default: Option<&str>) -> Result<Box<str>, Refusal> {
    match default {
        Some(default) if top.get("model").is_none() => Ok(default.into()),
        _ => model(top),
    }
}

/// Reads `model`, unescaped.
pub(crate) fn model(top: &Top<'_>) -> Result<Box<str>, Refusal> {
    let path = top.path("model");
    let value = read::filled(read::required(top.get("model"), &path, "the name of a model")?, &path)?;
    if value.body().len() > MAX_MODEL {
        return Err(path.wrong(format_args!("expected a string of at most {MAX_MODEL} bytes")));
    }
    Ok(value.text().into())
}

/// Reads a boolean, false by default.
pub(crate) fn switch(top: &Top<'_>, name: &str) -> Result<bool, Refusal> {
    Ok(read::flag(top.get(name), &top.path(name))?.unwrap_or(false))
}

/// Reads a cap on tokens, at least 1. Clients of llama.cpp and others send -1 for no cap.
pub(crate) fn cap(top: &Top<'_>, name: &str) -> Result<Option<u64>, Refusal> {
    if top.get(name).is_some_and(|value| value.raw() == "-1") {
        return Ok(None);
    }
    tokens(top, name, 1)
}

/// Reads a number of tokens, at least `low`.
pub(crate) fn tokens(top: &Top<'_>, name: &str, low: i64) -> Result<Option<u64>, Refusal> {
    let Some(value) = top.get(name) else { return Ok(None) };
    let count = read::integer(value, &top.path(name), low, i64::MAX)?;
    Ok(u64::try_from(count).ok())
}

/// Reads an optional keyword.
pub(crate) fn word(
    top: &Top<'_>,
    name: &str,
    words: &[&'static str],
) -> Result<Option<&'static str>, Refusal> {
    top.get(name).map(|value| read::one_of(value, &top.path(name), words)).transpose()
}

/// Reads stop sequences: an array of strings, or (`or_string`) one string.
pub(crate) fn stop(
    top: &Top<'_>,
    name: &str,
    or_string: bool,
    limits: &Limits,
) -> Result<Vec<String>, Refusal> {
    let path = top.path(name);
    let Some(value) = top.get(name) else { return Ok(Vec::new()) };
    if or_string && value.is_string() {
        return Ok(vec![sequence(value, &path, limits)?]);
    }
    if !value.is_array() {
        let expected = if or_string { "a string or an array of strings" } else { "an array of strings" };
        return Err(path.expected(expected, value.kind()));
    }
    let mut stop = Vec::new();
    for (index, item) in value.items().enumerate() {
        if index >= limits.max_stop {
            return Err(path.wrong(format_args!("expected at most {} stop sequences", limits.max_stop)));
        }
        stop.push(sequence(item, &path.index(index), limits)?);
    }
    Ok(stop)
}

fn sequence(
    value: crate::json::Value<'_>,
    at: &crate::path::Path<'_>,
    limits: &Limits,
) -> Result<String, Refusal> {
    if read::filled(value, at)?.body().len() > limits.max_stop_bytes {
        return Err(at.wrong(format_args!("expected at most {} bytes", limits.max_stop_bytes)));
    }
    Ok(value.text().into_owned())
}
