//! Paths of members that an error for the client may contain. They consist of names of the protocol only, because a
//! provider's validator also names keys that the client invented.

use super::error_signals::is_field_path;
use super::phrases::CLIENT_VISIBLE_FIELDS;

/// First names of paths, in addition to [`CLIENT_VISIBLE_FIELDS`] and the parameters of engines and dialects.
const ROOTS: &[&str] = &[
    "audio",
    "background",
    "content",
    "file",
    "include",
    "input",
    "instructions",
    "language",
    "metadata",
    "mode",
    "model",
    "n",
    "output_config",
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
    "adaptive",
    "any",
    "arguments",
    "assistant",
    "auto",
    "base64",
    "bool",
    "budget_tokens",
    "cache_control",
    "call_id",
    "content",
    "custom",
    "data",
    "description",
    "detail",
    "developer",
    "disabled",
    "document",
    "effort",
    "enabled",
    "enum",
    "exclude",
    "file",
    "file_data",
    "file_id",
    "filename",
    "float",
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
    "int",
    "is_error",
    "items",
    "json_object",
    "json_schema",
    "media_type",
    "name",
    "output",
    "output_text",
    "parameters",
    "pdf",
    "properties",
    "reasoning",
    "reasoning_content",
    "refusal",
    "required",
    "role",
    "schema",
    "search_result",
    "signature",
    "source",
    "str",
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

/// Types of messages and content parts in the names of types of engines, without their common start and end.
const MESSAGE_TYPES: &[&str] = &[
    "AssistantMessage",
    "ContentPart",
    "ContentPartImage",
    "ContentPartText",
    "DeveloperMessage",
    "FunctionMessage",
    "MessageGeneric",
    "MessageUser",
    "NamedToolChoice",
    "SystemMessage",
    "Tool",
    "ToolMessage",
    "ToolsMessage",
    "UserMessage",
];

/// Returns the longest start of a path that consists of names of the protocol and of indices; `None` if the first name
/// is not of the protocol.
pub(super) fn known_path_prefix(path: &str) -> Option<&str> {
    if !is_field_path(path) {
        return None;
    }
    let mut end = 0;
    let is_index = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    // A validator of list elements starts the path with the index of the element.
    let is_in_list = path.split_once('.').is_some_and(|(first, rest)| {
        let second = rest.split(['.', '[']).next().unwrap_or_default();
        is_index(first) && (is_root(second) || is_step(second))
    });
    for (index, step) in path.split('.').enumerate() {
        let name = step.split('[').next().unwrap_or_default();
        let is_named = match index {
            0 => is_root(name) || is_in_list,
            _ => is_index(name) || is_step(name) || is_in_list && index == 1,
        };
        if !is_named || !has_plain_indices(step) {
            break;
        }
        end += step.len() + usize::from(index > 0);
    }
    path.get(..end).filter(|start| !start.is_empty())
}

/// Returns true for a name that may follow in a path: one of [`STEPS`], or the type of a message as engines name it,
/// such as `ChatCompletionUserMessageParam`.
pub(super) fn is_step(name: &str) -> bool {
    let inside = name.strip_prefix("ChatCompletion").and_then(|rest| rest.strip_suffix("Param"));
    STEPS.contains(&name) || inside.is_some_and(|inside| MESSAGE_TYPES.contains(&inside))
}

/// Returns true for a name that may begin a path.
pub(super) fn is_root(name: &str) -> bool {
    CLIENT_VISIBLE_FIELDS.contains(&name)
        || ROOTS.contains(&name)
        || crate::parameters::is_listable_parameter(name)
}

/// Returns true if the brackets of a step contain numbers only.
pub(super) fn has_plain_indices(step: &str) -> bool {
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
            ("0.function.arguments", Some("0.function.arguments")),
            ("0.function.John", Some("0.function")),
            ("0.John.function", None),
            ("0.5", None),
            ("192.168.0.1", None),
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
