//! Paths of members that an error for the client may contain. They consist of names of the protocol only, because a
//! provider's validator also names keys that the client invented.

use super::error_signals::is_field_path;
use super::phrases::CLIENT_VISIBLE_FIELDS;

/// First names of paths, in addition to [`CLIENT_VISIBLE_FIELDS`] and the parameters of engines and dialects.
const ROOTS: &[&str] = &[
    "audio",
    "background",
    "file",
    "include",
    "input",
    "instructions",
    "language",
    "metadata",
    "mode",
    "model",
    "n",
    "output_format",
    "prompt",
    "query",
    "quality",
    "reasoning",
    "response_format",
    "size",
    "speed",
    "stream",
    "stream_options",
    "style",
    "system",
    "text",
    "thinking",
    "timestamp_granularities",
    "user",
    "voice",
];
/// Names that may follow in a path.
const STEPS: &[&str] = &[
    "arguments",
    "assistant",
    "budget_tokens",
    "cache_control",
    "call_id",
    "content",
    "data",
    "description",
    "detail",
    "developer",
    "effort",
    "enum",
    "exclude",
    "file",
    "file_data",
    "file_id",
    "filename",
    "format",
    "function",
    "function_call",
    "id",
    "image",
    "image_url",
    "include_usage",
    "input",
    "input_audio",
    "input_file",
    "input_image",
    "input_schema",
    "input_text",
    "is_error",
    "items",
    "json_schema",
    "media_type",
    "name",
    "output",
    "output_text",
    "parameters",
    "properties",
    "reasoning",
    "reasoning_content",
    "refusal",
    "required",
    "role",
    "schema",
    "signature",
    "source",
    "strict",
    "summary",
    "system",
    "text",
    "thinking",
    "tool",
    "tool_call_id",
    "tool_calls",
    "tool_result",
    "tool_use",
    "tool_use_id",
    "type",
    "url",
    "user",
];

/// Returns the longest start of a path that consists of names of the protocol and of indices; `None` if the first name
/// is not of the protocol.
pub(super) fn known_path_prefix(path: &str) -> Option<&str> {
    if !is_field_path(path) {
        return None;
    }
    let mut end = 0;
    for (index, step) in path.split('.').enumerate() {
        let name = step.split('[').next().unwrap_or_default();
        let is_index = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_named = match index {
            0 => is_root(name),
            _ => is_index || STEPS.contains(&name),
        };
        if !is_named || !has_plain_indices(step) {
            break;
        }
        end += step.len() + usize::from(index > 0);
    }
    path.get(..end).filter(|start| !start.is_empty())
}

fn is_root(name: &str) -> bool {
    CLIENT_VISIBLE_FIELDS.contains(&name)
        || ROOTS.contains(&name)
        || crate::parameters::is_listable_parameter(name)
}

/// Returns true if the brackets of a step contain numbers only.
fn has_plain_indices(step: &str) -> bool {
    step.split('[').skip(1).all(|index| {
        index.strip_suffix(']').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_before_a_name_that_is_not_of_the_protocol() {
        for (path, expected) in [
            ("temperature", Some("temperature")),
            ("messages[2].content", Some("messages[2].content")),
            ("messages.0.content.1.image_url.url", Some("messages.0.content.1.image_url.url")),
            ("messages[0].content.JohnSmith", Some("messages[0].content")),
            (
                "tools[0].function.parameters.properties.patient_ssn",
                Some("tools[0].function.parameters.properties"),
            ),
            ("messages[hiv].content", None),
            ("vllm.internal.example", None),
            ("John_Smith.has_hiv", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(known_path_prefix(path), expected, "{path}");
        }
    }
}
