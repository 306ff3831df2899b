//! Items of a stored conversation as clients list them. Requests may leave out members, or send null, where the
//! official types of the dialect require a value; listed items have these members.

use crate::json_cursor::{elements, is_array, is_null, is_object, member_value, members, parse_string};
use crate::stored_response::write_text_part;
use penstock_json_scan::json;

/// Returns an item with the members that the official types require, and without members that are null.
#[must_use]
pub fn complete_item(item: &[u8]) -> Vec<u8> {
    let text = |name: &str| member_value(item, name).and_then(parse_string).unwrap_or_default();
    let kind = ItemKind::parse(&text("type"), &text("role"));
    let mut out = Vec::with_capacity(item.len() + item.len() / 4 + 64);
    out.push(b'{');
    for (name, value) in members(item) {
        if is_null(value) {
            continue;
        }
        json::write_member_name(&mut out, &name);
        match (kind, &*name) {
            (ItemKind::InputMessage | ItemKind::OutputMessage, "content")
            | (ItemKind::ToolOutput, "output") => write_content(kind, value, &mut out),
            (ItemKind::Reasoning, "content" | "summary") => {
                let default = if name == "content" { "reasoning_text" } else { "summary_text" };
                write_parts(value, &mut out, |part, out| write_text_object(part, default, &[], out));
            }
            // Requests may have the arguments as an object.
            (ItemKind::FunctionCall, "arguments") if is_object(value) => {
                json::write_str(&mut out, &String::from_utf8_lossy(value));
            }
            _ => out.extend_from_slice(value),
        }
    }
    for (name, value) in kind.required_members() {
        if member_value(item, name).is_none() {
            json::write_member_name(&mut out, name);
            out.extend_from_slice(value.as_bytes());
        }
    }
    out.push(b'}');
    out
}

/// Types of items that have required members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    InputMessage,
    OutputMessage,
    FunctionCall,
    CustomCall,
    ToolOutput,
    Reasoning,
    Other,
}

impl ItemKind {
    fn parse(kind: &str, role: &str) -> Self {
        match kind {
            "message" if role == "assistant" => Self::OutputMessage,
            "message" => Self::InputMessage,
            "function_call" => Self::FunctionCall,
            "custom_tool_call" => Self::CustomCall,
            "function_call_output" | "custom_tool_call_output" => Self::ToolOutput,
            "reasoning" => Self::Reasoning,
            _ => Self::Other,
        }
    }

    /// Returns the required members that requests may leave out, with their values as JSON.
    const fn required_members(self) -> &'static [(&'static str, &'static str)] {
        const STATUS: (&str, &str) = ("status", r#""completed""#);
        match self {
            Self::InputMessage | Self::OutputMessage | Self::CustomCall | Self::ToolOutput => &[STATUS],
            Self::FunctionCall => &[STATUS, ("arguments", r#""{}""#)],
            Self::Reasoning => &[("summary", "[]")],
            Self::Other => &[],
        }
    }
}

/// Writes the content of a message, or the output of a tool. A text that is the only content of a message becomes a
/// part.
fn write_content(kind: ItemKind, content: &[u8], out: &mut Vec<u8>) {
    let is_answer = kind == ItemKind::OutputMessage;
    if !is_array(content) {
        return match kind {
            ItemKind::ToolOutput => out.extend_from_slice(content),
            _ => write_text_part(content, is_answer, out),
        };
    }
    write_parts(content, out, |part, out| {
        let part_type = member_value(part, "type").and_then(parse_string).unwrap_or_default();
        match &*part_type {
            "input_text" | "output_text" if is_answer => {
                write_text_object(part, "output_text", &[("annotations", "[]"), ("logprobs", "[]")], out);
            }
            "input_text" | "output_text" => write_text_object(part, "input_text", &[], out),
            "input_image" => write_text_object(part, "input_image", &[("detail", r#""auto""#)], out),
            _ => out.extend_from_slice(part),
        }
    });
}

fn write_parts(list: &[u8], out: &mut Vec<u8>, write_part: impl Fn(&[u8], &mut Vec<u8>)) {
    out.push(b'[');
    for (at, part) in elements(list).enumerate() {
        out.extend_from_slice(if at > 0 { b"," } else { b"" });
        write_part(part, out);
    }
    out.push(b']');
}

/// Writes a part with this type, without members that are null, and with the required members that it lacks.
fn write_text_object(part: &[u8], part_type: &str, required: &[(&str, &str)], out: &mut Vec<u8>) {
    out.push(b'{');
    json::write_member_name(out, "type");
    json::write_str(out, part_type);
    for (name, value) in members(part) {
        // Annotations and log probabilities belong to output texts alone.
        let is_foreign = part_type == "input_text" && matches!(&*name, "annotations" | "logprobs");
        if name != "type" && !is_null(value) && !is_foreign {
            json::write_member_name(out, &name);
            out.extend_from_slice(value);
        }
    }
    for (name, value) in required {
        if member_value(part, name).is_none() {
            json::write_member_name(out, name);
            out.extend_from_slice(value.as_bytes());
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn complete(item: &Value) -> Value {
        serde_json::from_slice(&complete_item(item.to_string().as_bytes())).unwrap_or_default()
    }

    #[test]
    fn an_item_gets_the_members_that_the_official_types_require() {
        let call = json!({"id": "fc", "type": "function_call", "call_id": "c", "name": "f"});
        let output = json!({"id": "fco", "type": "function_call_output", "call_id": "c", "output": "1"});
        let custom =
            json!({"id": "ctc", "type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""});
        let with = |item: &Value, more: Value| {
            let mut item = item.clone();
            if let (Some(item), Value::Object(more)) = (item.as_object_mut(), more) {
                item.extend(more);
            }
            item
        };
        let done = json!({"status": "completed"});
        for (item, expected) in [
            (call.clone(), with(&call, json!({"status": "completed", "arguments": "{}"}))),
            (
                with(&call, json!({"arguments": {"a": "\"b\""}, "namespace": null, "status": null})),
                with(&call, json!({"status": "completed", "arguments": r#"{"a":"\"b\""}"#})),
            ),
            (
                with(&call, json!({"arguments": "{\"a\":", "namespace": "n", "status": "incomplete"})),
                with(&call, json!({"arguments": "{\"a\":", "namespace": "n", "status": "incomplete"})),
            ),
            (output.clone(), with(&output, done.clone())),
            (custom.clone(), with(&custom, done.clone())),
            (
                json!({"id": "rs", "type": "reasoning"}),
                json!({"id": "rs", "type": "reasoning", "summary": []}),
            ),
            (
                json!({"type": "reasoning", "summary": [{"text": "a"}], "content": [{"text": "b"}],
                    "encrypted_content": null}),
                json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}],
                    "content": [{"type": "reasoning_text", "text": "b"}]}),
            ),
            (json!({"id": "x", "type": "new_item", "a": 1}), json!({"id": "x", "type": "new_item", "a": 1})),
        ] {
            assert_eq!(complete(&item), expected, "{item}");
        }
    }

    #[test]
    fn the_parts_of_a_content_are_those_of_their_item() {
        let text = |part_type: &str| json!({"type": part_type, "text": "a"});
        let answer = json!({"type": "output_text", "text": "a", "annotations": [], "logprobs": []});
        let url = "data:image/png;base64,AA==";
        let image = |detail: &str| json!({"type": "input_image", "image_url": url, "detail": detail});
        let refusal = json!({"type": "refusal", "refusal": "no"});
        for (role, content, expected) in [
            ("assistant", json!("a"), json!([answer])),
            (
                "assistant",
                json!([text("input_text"), text("output_text"), refusal]),
                json!([answer, answer, refusal]),
            ),
            ("user", json!("a"), json!([text("input_text")])),
            ("developer", json!([answer]), json!([text("input_text")])),
            (
                "user",
                json!([{"type": "input_image", "image_url": url, "detail": null, "file_id": null}, image("low")]),
                json!([image("auto"), image("low")]),
            ),
            ("user", json!([]), json!([])),
        ] {
            let item = json!({"type": "message", "role": role, "content": content});
            let expected =
                json!({"type": "message", "role": role, "content": expected, "status": "completed"});
            assert_eq!(complete(&item), expected, "{item}");
        }
        let annotated =
            json!([{"type": "output_text", "text": "a", "annotations": [{"type": "x"}], "logprobs": null}]);
        let listed = complete(&json!({"type": "message", "role": "assistant", "content": annotated}));
        assert_eq!(listed.pointer("/content/0/annotations/0/type"), Some(&json!("x")), "{listed}");
        assert_eq!(listed.pointer("/content/0/logprobs"), Some(&json!([])), "{listed}");
        let output = json!([text("output_text"), {"type": "input_image", "image_url": url}]);
        let listed = complete(&json!({"type": "custom_tool_call_output", "call_id": "c", "output": output}));
        assert_eq!(listed.get("output"), Some(&json!([text("input_text"), image("auto")])));
    }
}
