//! Typed reading of values; each error names the field, the expected and the actual type.

use crate::json::{Kind, Value};
use crate::path::{Path, speakable};
use penstock_contract::Refusal;
use std::borrow::Cow;
use std::fmt;

/// Returns the known members of an object; `null` counts as absent, other members are ignored, and keys must be unique.
pub(crate) fn object<'d, const N: usize>(
    value: Value<'d>,
    at: &Path<'_>,
    names: [&'static str; N],
) -> Result<[Option<Value<'d>>; N], Refusal> {
    if !value.is_object() {
        return Err(at.expected("an object", value.kind()));
    }
    let mut found = [None; N];
    let mut others = Vec::new();
    for (key, member) in value.members() {
        let text = key.text();
        match names.iter().zip(&mut found).find(|(name, _)| *text == ***name) {
            None => others.push(key),
            Some((name, Some(_))) => return Err(twice(at, name)),
            Some((_, slot)) => *slot = Some(member),
        }
    }
    if others.len() > 1 {
        unique(&others).map_err(|key| match speakable(&key) {
            Some(name) => twice(at, &name),
            None => at.wrong("a key occurs more than once"),
        })?;
    }
    Ok(found.map(|member| member.filter(|member| !member.is_null())))
}

fn twice(at: &Path<'_>, name: &str) -> Refusal {
    at.key(name).wrong("the key occurs more than once")
}

/// Checks that the keys are unique.
pub(crate) fn unique<'d>(keys: &[Value<'d>]) -> Result<(), Value<'d>> {
    if keys.len() < 12 {
        for (count, key) in keys.iter().enumerate() {
            let text = key.text();
            if keys.iter().take(count).any(|earlier| earlier.is(&text)) {
                return Err(*key);
            }
        }
        return Ok(());
    }
    let mut sorted: Vec<(Cow<'_, str>, Value<'d>)> = keys.iter().map(|key| (key.text(), *key)).collect();
    sorted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs.find(|((one, _), (other, _))| one == other).map_or(Ok(()), |(_, (_, key))| Err(*key))
}

/// Returns a required member.
pub(crate) fn required<'d>(
    member: Option<Value<'d>>,
    at: &Path<'_>,
    expected: impl fmt::Display,
) -> Result<Value<'d>, Refusal> {
    member.ok_or_else(|| at.missing(expected))
}

/// Checks for a string.
pub(crate) fn string<'d>(value: Value<'d>, at: &Path<'_>) -> Result<Value<'d>, Refusal> {
    if value.is_string() { Ok(value) } else { Err(at.expected("a string", value.kind())) }
}

/// Checks for a string that is not empty.
pub(crate) fn filled<'d>(value: Value<'d>, at: &Path<'_>) -> Result<Value<'d>, Refusal> {
    match string(value, at)?.body() {
        [] => Err(at.wrong("expected a string that is not empty")),
        _ => Ok(value),
    }
}

/// Returns a required string that is not empty.
pub(crate) fn name<'d>(member: Option<Value<'d>>, at: &Path<'_>) -> Result<Value<'d>, Refusal> {
    filled(required(member, at, "a string")?, at)
}

/// Checks for an array.
pub(crate) fn array<'d>(value: Value<'d>, at: &Path<'_>) -> Result<Value<'d>, Refusal> {
    if value.is_array() { Ok(value) } else { Err(at.expected("an array", value.kind())) }
}

/// Checks for an object with any members.
pub(crate) fn any_object(value: Value<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    if value.is_object() { Ok(()) } else { Err(at.expected("an object", value.kind())) }
}

/// Reads a boolean.
pub(crate) fn boolean(value: Value<'_>, at: &Path<'_>) -> Result<bool, Refusal> {
    match value.kind() {
        Kind::True => Ok(true),
        Kind::False => Ok(false),
        other => Err(at.expected("a boolean", other)),
    }
}

/// Reads an optional boolean.
pub(crate) fn flag(member: Option<Value<'_>>, at: &Path<'_>) -> Result<Option<bool>, Refusal> {
    member.map(|value| boolean(value, at)).transpose()
}

/// Reads one of these keywords.
pub(crate) fn one_of(
    value: Value<'_>,
    at: &Path<'_>,
    words: &[&'static str],
) -> Result<&'static str, Refusal> {
    if let Some(word) = words.iter().find(|word| value.is(word)) {
        return Ok(word);
    }
    let expected = Alternatives(words);
    Err(if value.is_string() { at.other_string(expected) } else { at.expected(expected, value.kind()) })
}

/// Keywords formatted as `"a", "b" or "c"`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alternatives<'w>(pub(crate) &'w [&'static str]);

impl fmt::Display for Alternatives<'_> {
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
pub(crate) fn integer(value: Value<'_>, at: &Path<'_>, low: i64, high: i64) -> Result<i64, Refusal> {
    let expected = || match (low, high) {
        (i64::MIN, i64::MAX) => "an integer of at most 64 bits".to_owned(),
        (low, i64::MAX) => format!("an integer of at least {low}"),
        (low, high) => format!("an integer from {low} to {high}"),
    };
    if value.kind() != Kind::Number {
        return Err(at.expected(expected(), value.kind()));
    }
    if value.raw().bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
        return Err(at.wrong(format_args!("expected {}, got a number that is no integer", expected())));
    }
    match value.raw().parse::<i64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(at.wrong(format_args!("expected {}, got a number out of range", expected()))),
    }
}

/// Reads a number within inclusive bounds.
pub(crate) fn number(value: Value<'_>, at: &Path<'_>, low: f64, high: f64) -> Result<f64, Refusal> {
    if value.kind() != Kind::Number {
        return Err(at.expected(format_args!("a number from {low} to {high}"), value.kind()));
    }
    match value.raw().parse::<f64>() {
        Ok(number) if (low..=high).contains(&number) => Ok(number),
        _ => Err(at.wrong(format_args!("expected a number from {low} to {high}, got a number out of range"))),
    }
}
