//! Detection of errors that name the member which the provider does not know.

use super::error_signals::is_field_path;
use super::phrases::UNKNOWN_MEMBER_PHRASES;
use super::request_echo::QUOTES;
use serde_json::Value;

/// Maximum depth at which a location is looked for.
const MAX_DEPTH: u8 = 8;
/// First steps of the location in a validation error that do not name a member, such as `body`.
const LOCATION_ROOTS: [&str; 4] = ["body", "query", "header", "path"];

/// Returns true if an error names the member that it refuses, known or not: in `param`, in the location of a validation
/// error, or in the message. `error` is null for an error in plain text; `text` has the strings of the error, in lower
/// case.
pub(super) fn names_refused_member(error: &Value, text: &str) -> bool {
    let param = error.get("param").and_then(Value::as_str).unwrap_or_default();
    !param.is_empty() || has_location(error, 0) || has_written_location(text) || is_named_in_message(text)
}

/// Returns true if an object has a location `loc` that names a member.
fn has_location(value: &Value, depth: u8) -> bool {
    let nested = |value| depth < MAX_DEPTH && has_location(value, depth + 1);
    match value {
        Value::Object(members) => {
            let of_object = members.get("loc").and_then(Value::as_array);
            of_object.is_some_and(|steps| steps.iter().filter_map(Value::as_str).any(is_member_step))
                || members.values().any(nested)
        }
        Value::Array(items) => items.iter().any(nested),
        _ => false,
    }
}

fn is_member_step(step: &str) -> bool {
    !step.is_empty() && !LOCATION_ROOTS.contains(&step)
}

/// Returns true if the text contains a location as JSON or in the notation of Python: `'loc': ('body', 'name')`.
fn has_written_location(text: &str) -> bool {
    ["'loc':", "\"loc\":"].iter().flat_map(|key| text.split(key).skip(1)).any(|rest| {
        let list = rest.trim_start().strip_prefix(['(', '[']);
        let steps = list.and_then(|list| list.split([')', ']']).next()).unwrap_or_default();
        steps.split(',').any(|step| is_member_step(step.trim().trim_matches(QUOTES)))
    })
}

/// Returns true if a phrase about an unknown member comes with a name: in quotes or after a colon after the phrase, or
/// as a path before it or on the line above.
fn is_named_in_message(text: &str) -> bool {
    let mut previous = "";
    for line in text.lines() {
        // A list of validation errors names the path of a member on the line above the error.
        let path_above = previous;
        previous = line.trim();
        for phrase in UNKNOWN_MEMBER_PHRASES {
            let Some((before, after)) = line.split_once(phrase) else { continue };
            let path_before = before.trim_end().strip_suffix(':').map(str::trim);
            let is_listed = before.starts_with(' ') && before.trim().is_empty() && is_field_path(path_above);
            if is_listed || path_before.is_some_and(is_member_path) || is_name_behind(after) {
                return true;
            }
        }
    }
    false
}

/// Returns true if a path may name a member of a request, in contrast to a heading such as `error`.
fn is_member_path(path: &str) -> bool {
    let path = path.trim_matches(QUOTES);
    is_field_path(path) && !path.contains("error") && !LOCATION_ROOTS.contains(&path)
}

/// Returns true if a text has a word in quotes, or ends with a colon and a single word that is not a number.
fn is_name_behind(text: &str) -> bool {
    let quoted = text.split(QUOTES).skip(1).step_by(2).any(is_field_path);
    let last = text.rsplit_once(':').map(|(_, word)| word.trim().trim_end_matches('.'));
    quoted || last.is_some_and(|word| is_field_path(word) && !word.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    fn is_named(error: &Value) -> bool {
        let mut text = String::new();
        super::super::error_signals::collect_strings(error, &mut text, 0);
        names_refused_member(error, &text.to_lowercase())
    }

    #[test]
    fn a_name_in_any_notation_is_found() {
        for error in [
            json!([{"type": "extra_forbidden", "loc": ["body", "chat_template"], "msg": "Extra inputs are not permitted"}]),
            json!({"message": "[{'type': 'extra_forbidden', 'loc': ('body', 'chat_template'), 'msg': 'Extra inputs'}]"}),
            json!({"message": r#"[{"type":"extra_forbidden","loc": ["body","foo"],"msg":"Extra inputs"}]"#}),
            json!({"message": "Unknown parameter", "param": "foo bar"}),
            json!({"message": "Unknown parameter: 'foo'."}),
            json!({"message": "Unknown parameter: \u{2018}foo\u{2019}."}),
            json!({"message": "Unknown parameter: \u{201c}foo\u{201d}."}),
            json!({"message": "Unrecognized request argument supplied: foo"}),
            json!({"message": "foo: Extra inputs are not permitted"}),
            json!({"message": "messages.0.foo: Extra inputs are not permitted"}),
            json!({"message": "Invalid body: unknown field `foo`, expected one of `model`, `messages`"}),
            json!({"message": "Additional properties are not allowed ('foo' was unexpected)"}),
            json!({"message": "1 validation error for Request\nfoo\n  Extra inputs are not permitted [type=x]"}),
        ] {
            assert!(is_named(&error), "{error}");
        }
    }

    #[test]
    fn a_refusal_without_a_name_is_recognized() {
        for error in [
            json!("Extra inputs are not permitted"),
            json!([{"type": "extra_forbidden", "loc": ["body"], "msg": "Extra inputs are not permitted"}]),
            json!({"message": "Request contains unknown fields"}),
            json!({"message": "Error: unknown field in the request", "code": "unknown_parameter", "param": null}),
            json!({"message": "Additional properties are not allowed", "type": "invalid_request_error"}),
            json!({"message": "Unknown field in the request, code: 400"}),
            json!({"message": "ValidationError: Extra inputs are not permitted"}),
        ] {
            assert!(!is_named(&error), "{error}");
        }
    }
}
