//! Checks of single values against their schema: formats, ranges, choices, and suggested corrections.

use super::spanned_toml::{SpannedValue, Value};
use super::units;
use serde_json::Value as Json;

/// Returns the choices of a key as text; `None` if the key has no fixed choices.
pub fn choice_list(schema: &Json) -> Option<String> {
    let choices: Vec<String> = fixed_choices(schema)?.iter().map(|choice| format!("{choice:?}")).collect();
    Some(choices.join(", "))
}

/// Returns the choices of a key; `None` if the key has no fixed choices. Choices with a description of their own are a
/// `oneOf` of constants, the others an `enum`.
pub fn fixed_choices(schema: &Json) -> Option<Vec<&str>> {
    if let Some(choices) = schema.get("enum").and_then(Json::as_array) {
        return Some(choices.iter().filter_map(Json::as_str).collect());
    }
    let branches = schema.get("oneOf").and_then(Json::as_array)?;
    let choices = branches.iter().map(|branch| match branch.get("const") {
        Some(choice) => choice.as_str().map(|choice| vec![choice]),
        None => fixed_choices(branch),
    });
    choices.collect::<Option<Vec<_>>>().map(|choices| choices.concat())
}

/// Returns the reason why a value of the right type is invalid; `None` if it is valid.
pub fn invalid_value_reason(node: &SpannedValue, schema: &Json, format: &str) -> Option<String> {
    let literal = node.literal().unwrap_or_default();
    if let Some(choices) = fixed_choices(schema) {
        return (!choices.contains(&literal)).then(|| "It is not one of the choices.".to_owned());
    }
    match format {
        "duration" | "pause" => match units::parse_duration(literal) {
            None if units::is_too_long_duration(literal) => {
                return Some("It must be at most 366d.".to_owned());
            }
            None => {
                return Some(
                    "It is not a duration: a number and a unit, `ms`, `s`, `m`, `h` or `d`.".to_owned(),
                );
            }
            Some(duration) if duration.is_zero() && format == "duration" => {
                return Some("It must be more than zero.".to_owned());
            }
            Some(_) => {}
        },
        "size" if units::is_too_large_size(literal) => return Some("The size is too large.".to_owned()),
        "size" if units::parse_size(literal).is_none() => {
            return Some("It is not a size: a number and a unit, `B`, `KiB`, `MiB` or `GiB`.".to_owned());
        }
        "provider-id" if !is_provider_id(literal) => {
            return Some(
                "It must be 1 to 64 letters, digits, `-`, `_` and `.`, the first a letter or digit."
                    .to_owned(),
            );
        }
        "model-id" if !is_model_id(literal) => {
            return Some(
                "It must be 1 to 128 printable ASCII characters without spaces and quotes.".to_owned(),
            );
        }
        "model-id" => {
            if let (_, Some(flavor)) = penstock_routing::split_flavor(literal) {
                return Some(format!("`:{}` at its end would be read as a flavor.", flavor.name()));
            }
        }
        "decimal" if units::parse_decimal(literal).is_none() => {
            return Some("It is not an exact number of at most 28 digits.".to_owned());
        }
        _ => {}
    }
    if matches!(&node.value, Value::Integer(text) if text.parse::<i64>().is_err()) {
        return Some("The number is too large.".to_owned());
    }
    let is_number = matches!(node.value, Value::Integer(_) | Value::Float(_)) || format == "decimal";
    if is_number && format != "size" { range_error(literal, schema) } else { length_error(literal, schema) }
}

fn is_provider_id(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&text.len())
        && text.bytes().all(good)
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

fn is_model_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'`\\".contains(&byte))
}

/// Returns the reason why the length is invalid; `None` if it is valid. It is counted in characters, as in JSON Schema.
fn length_error(text: &str, schema: &Json) -> Option<String> {
    let bound = |name: &str| schema.get(name).and_then(Json::as_u64);
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    match (bound("minLength"), bound("maxLength")) {
        (Some(1), _) if length < 1 => Some("It must not be empty.".to_owned()),
        (Some(least), _) if length < least => Some(format!("It must have at least {least} characters.")),
        (_, Some(most)) if length > most => Some(format!("It must have at most {most} characters.")),
        _ => None,
    }
}

fn range_error(literal: &str, schema: &Json) -> Option<String> {
    let bound = |name: &str| schema.get(name).and_then(|bound| units::parse_decimal(&bound.to_string()));
    let Some(value) = units::parse_decimal(literal) else {
        return Some("It is not a number in range.".to_owned());
    };
    let (least, above, most) = (bound("minimum"), bound("exclusiveMinimum"), bound("maximum"));
    if let Some(above) = above.filter(|above| value <= *above) {
        return Some(format!("It must be more than {above}."));
    }
    let out = least.is_some_and(|least| value < least) || most.is_some_and(|most| value > most);
    out.then(|| match (least, most) {
        (Some(least), Some(most)) => format!("It must be from {least} to {most}."),
        (Some(least), None) => format!("It must be at least {least}."),
        (None, Some(most)) => format!("It must be at most {most}."),
        (None, None) => String::new(),
    })
}

/// Tells how to correct a value of the right type; empty if that is not known.
pub fn scalar_remedy(node: &SpannedValue, schema: &Json, path: &str) -> String {
    if schema.get("format").and_then(Json::as_str) == Some("model-id")
        && let (_, Some(flavor)) = penstock_routing::split_flavor(node.literal().unwrap_or_default())
    {
        return format!("Take `:{}` off; clients may add a flavor to each name.", flavor.name());
    }
    suggested_line(path, schema)
}

/// Suggests a corrected line: with the choices, the default or an example; empty if the schema has none of them.
pub fn suggested_line(path: &str, schema: &Json) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    let key = key.split('[').next().unwrap_or(key);
    if let Some(choices) = choice_list(schema) {
        return format!("Write one of {choices}.");
    }
    let default = schema.get("default").filter(|default| !default.is_object() && !default.is_array());
    let example = schema.get("examples").and_then(|examples| examples.get(0));
    match (default, example) {
        (Some(default), _) => format!("The default is `{key} = {default}`."),
        (None, Some(example)) => format!("Write something like `{key} = {example}`."),
        (None, None) => String::new(),
    }
}

/// Returns a valid placeholder for a required value that is invalid or missing, so that the check can continue; `None`
/// if there is none, such as for a reference to another block.
pub fn placeholder_for_invalid_value(name: &str, schema: &Json, path: &str) -> Option<Value> {
    let example = schema.get("examples").and_then(|examples| examples.get(0));
    if let Some(choices) = fixed_choices(schema) {
        return choices.first().map(|choice| Value::Text((*choice).to_owned()));
    }
    match schema.get("format").and_then(Json::as_str).unwrap_or_default() {
        "model-id" | "provider-id" => return Some(Value::Text(format!("[{path}]"))),
        "address" => return Some(Value::Text("127.0.0.1:0".to_owned())),
        _ => {}
    }
    match example? {
        Json::Number(number) if number.is_u64() => Some(Value::Integer(number.to_string())),
        Json::Number(number) => Some(Value::Text(number.to_string())),
        Json::String(text) if ["operator", "country", "city", "base_url"].contains(&name) => {
            Some(Value::Text(text.clone()))
        }
        _ => None,
    }
}

/// Converts a valid value to the form in which it is deserialized: an exact decimal becomes the text of its digits, so
/// that it is not read as a float.
pub fn decimal_as_text(node: SpannedValue, format: &str) -> SpannedValue {
    match node.value {
        Value::Integer(text) | Value::Float(text) if format == "decimal" => {
            SpannedValue { value: Value::Text(text), ..node }
        }
        value => SpannedValue { value, ..node },
    }
}
