//! Parser of the engine parameters that constrain the text of an answer, by their names in vLLM.

use super::{AnswerFormat, RequestError};
use serde_json::Value;

/// Constraints: the name inside `structured_outputs`, and the older name, which is a member of the request.
const CONSTRAINTS: [(&str, &str); 6] = [
    ("json", "guided_json"),
    ("choice", "guided_choice"),
    ("regex", "guided_regex"),
    ("grammar", "guided_grammar"),
    ("structural_tag", "structural_tag"),
    ("json_object", "guided_json_object"),
];

/// Returns the format that the constraints of a request demand, or else `own`. `member` returns the value of a member of
/// the request.
///
/// # Errors
/// Returns an error for a constraint that the simulation cannot satisfy, such as a regular expression.
pub(crate) fn constrained_format<'b>(
    own: AnswerFormat,
    member: impl Fn(&str) -> Option<&'b Value>,
) -> Result<AnswerFormat, RequestError> {
    let newer = member("structured_outputs");
    for (key, older) in CONSTRAINTS {
        let inner = newer.and_then(|all| all.get(key)).map(|value| ("structured_outputs", value));
        let outer = member(older).map(|value| (older, value));
        let given = inner.or(outer).filter(|(_, value)| !matches!(value, Value::Null | Value::Bool(false)));
        let Some((field, value)) = given else { continue };
        let format = match key {
            "json" => schema(value).map(AnswerFormat::Schema),
            "json_object" => Some(AnswerFormat::Object),
            "choice" => value.get(0).and_then(Value::as_str).map(|text| AnswerFormat::Exact(text.to_owned())),
            _ => None,
        };
        return format.ok_or_else(|| RequestError {
            message: format!("The simulated engine cannot apply the constraint `{key}`."),
            field: Some(field),
        });
    }
    Ok(own)
}

/// Returns the format that `response_format` of a chat or a text completion demands.
pub(crate) fn response_format(format: Option<&Value>) -> AnswerFormat {
    match format.and_then(|format| format.get("type")?.as_str()) {
        Some("json_object") => AnswerFormat::Object,
        Some("json_schema") => format
            .and_then(|format| format.pointer("/json_schema/schema"))
            .cloned()
            .map_or(AnswerFormat::Object, AnswerFormat::Schema),
        _ => AnswerFormat::Text,
    }
}

/// Returns a schema that is an object, or a string that contains one.
fn schema(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_object),
        other => Some(other.clone()).filter(Value::is_object),
    }
}
