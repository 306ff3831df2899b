//! Readers of JSON fields, with errors that name the field.

use serde_json::{Map, Value};

/// Error of a body that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct PromptParseError {
    /// Path of the field, such as `messages[2].content`; `body` for the entire body.
    pub field: String,
    /// Expected type, as a phrase that quotes no content of the body.
    pub expected: &'static str,
}

impl PromptParseError {
    pub(super) fn new(field: impl Into<String>, expected: &'static str) -> Self {
        Self { field: field.into(), expected }
    }
}

/// Maximum sum of the depths of all JSON values in a body that is parsed. Real prompts have a few values for each
/// message and tool, at depths of three to eight. A body with very many or very deep values would take many times its
/// size in memory; if it has tools, their indentation in the prompt alone would be that large.
const MAX_DEPTH_SUM: u64 = 1 << 20;

/// Returns true if the memory for parsing the body is at most a few times the size of the body. Examines brackets and
/// commas only.
pub(super) fn fits_memory_limit(body: &[u8]) -> bool {
    let (mut depths, mut depth) = (0_u64, 0_u64);
    let mut rest = body.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => {
                // Skips the rest of a string, up to its closing quote.
                while let Some(byte) = rest.next() {
                    match byte {
                        b'\\' => drop(rest.next()),
                        b'"' => break,
                        _ => {}
                    }
                }
            }
            b'[' | b'{' => {
                depth += 1;
                depths += depth;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => depths += depth,
            _ => {}
        }
    }
    depths <= MAX_DEPTH_SUM
}

/// Parses a request body, which must be a JSON object.
pub(super) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, PromptParseError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(PromptParseError::new("body", "must be a JSON object")),
        Err(_) => Err(PromptParseError::new("body", "is not valid JSON")),
    }
}

/// Removes and returns a member; `null` counts as absent.
pub(super) fn take_member(map: &mut Map<String, Value>, name: &str) -> Option<Value> {
    map.get_mut(name).map(Value::take).filter(|value| !value.is_null())
}

/// Removes and returns a member that must be a string, if it is present.
pub(super) fn take_text(
    map: &mut Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<Option<String>, PromptParseError> {
    match take_member(map, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(PromptParseError::new(format!("{path}.{name}"), "must be a string")),
    }
}

/// Removes and returns a member that must be a list; an absent member is an empty list.
pub(super) fn take_list(
    map: &mut Map<String, Value>,
    name: &str,
    path: &str,
) -> Result<Vec<Value>, PromptParseError> {
    match take_member(map, name) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(PromptParseError::new(join(path, name), "must be a list")),
    }
}

/// Returns the value as an object, or an error with its path if it is none.
pub(super) fn into_object(value: Value, path: &str) -> Result<Map<String, Value>, PromptParseError> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(PromptParseError::new(path, "must be an object")),
    }
}

/// Removes and returns the type of a block or part.
pub(super) fn take_type(map: &mut Map<String, Value>, path: &str) -> Result<String, PromptParseError> {
    take_text(map, "type", path)?.ok_or_else(|| PromptParseError::new(format!("{path}.type"), "is missing"))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the bytes of all strings in a value, plus 8 for each number, boolean and null, at any depth. The sum is an
/// upper bound on the tokens of an unknown part. Brackets and names of members do not count.
pub(super) fn estimate_value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(estimate_value_bytes).sum(),
        Value::Object(map) => map.values().map(estimate_value_bytes).sum(),
        _ => 8,
    }
}
