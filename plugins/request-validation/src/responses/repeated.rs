//! Members of the request that the response object repeats.

use super::settings::ResponseSettings;
use crate::body::RootObject;
use bytes::Bytes;
use penstock_json_scan::tape::{JsonValue, ValueKind};

/// Members that are repeated unchanged, with the value that is written if the member is absent.
const AS_SENT: &[(&str, &str)] = &[
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("safety_identifier", "null"),
    ("temperature", "null"),
    ("tool_choice", "\"auto\""),
    ("top_logprobs", "0"),
    ("top_p", "null"),
    ("user", "null"),
];

/// Members with the same value in every answer, such as `truncation` (the gateway never shortens a conversation), and
/// after them the key of `store`, whose value varies.
const CONSTANT: &str = r#","prompt":null,"service_tier":"default","truncation":"disabled","store":"#;

/// Returns the request members that the response object repeats, as JSON text without braces, with a comma between
/// them.
pub(super) fn echoed_request_members(
    top: &RootObject<'_>,
    settings: &ResponseSettings<'_>,
    is_stored: bool,
    in_background: bool,
) -> Bytes {
    let mut out =
        String::with_capacity(512 + top.total_value_bytes(&["tools", "instructions", "text", "metadata"]));
    out.push_str(if in_background { r#""background":true"# } else { r#""background":false"# });
    out.push_str(CONSTANT);
    out.push_str(if is_stored { "true" } else { "false" });
    for (name, absent) in AS_SENT {
        push_key(&mut out, name);
        out.push_str(top.get(name).map_or(absent, |value| value.raw()));
    }
    push_key(&mut out, "reasoning");
    let word = |word: Option<&str>| word.map_or("null".to_owned(), |word| format!("\"{word}\""));
    out.push_str(&format!(
        "{{\"effort\":{},\"summary\":{}}}",
        word(settings.effort),
        word(settings.summary.filter(|word| *word != "none"))
    ));
    push_key(&mut out, "text");
    push_completed(&mut out, top.get("text"), &[("format", r#"{"type":"text"}"#)]);
    push_key(&mut out, "tools");
    out.push('[');
    for (at, tool) in top.get("tools").iter().flat_map(JsonValue::items).enumerate() {
        if at > 0 {
            out.push(',');
        }
        let is_function =
            tool.members().any(|(key, kind)| key.equals_text("type") && kind.equals_text("function"));
        let required: &[_] = if is_function { &[("parameters", "null"), ("strict", "null")] } else { &[] };
        push_completed(&mut out, Some(tool), required);
    }
    out.push(']');
    // The members become part of a server-sent event, which must be one line. Line breaks in JSON are always outside
    // strings.
    out.retain(|character| !matches!(character, '\n' | '\r'));
    Bytes::from(out)
}

fn push_key(out: &mut String, name: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
}

/// Writes an object and adds the required members that are absent.
fn push_completed(out: &mut String, object: Option<JsonValue<'_>>, required: &[(&str, &str)]) {
    let members: Vec<(JsonValue<'_>, JsonValue<'_>)> = object.iter().flat_map(JsonValue::members).collect();
    out.push('{');
    let start = out.len();
    for (key, value) in &members {
        let required = required.iter().find(|(name, _)| key.equals_text(name));
        let value = match (required, value.kind()) {
            (Some((_, absent)), ValueKind::Null) => absent,
            _ => value.raw(),
        };
        push_comma(out, start);
        out.push_str(key.raw());
        out.push(':');
        out.push_str(value);
    }
    for (name, value) in required {
        if !members.iter().any(|(key, _)| key.equals_text(name)) {
            push_comma(out, start);
            out.push_str(&format!("\"{name}\":{value}"));
        }
    }
    out.push('}');
}

fn push_comma(out: &mut String, start: usize) {
    if out.len() > start {
        out.push(',');
    }
}
