//! Names of the protocol that an error message may name anywhere: members, types of parts, and keywords of JSON Schema.

use super::field_names::{has_plain_indices, is_root, is_step};

/// Names in addition to those of paths (see `field_names`).
const NAMES: &[&str] = &[
    "add_generation_prompt",
    "chat_template",
    "completion_tokens",
    "computer_call",
    "computer_call_output",
    "context_length",
    "continue_final_message",
    "custom_tool_call",
    "custom_tool_call_output",
    "encrypted_content",
    "finish_reason",
    "function_call_output",
    "guided_json",
    "input_tokens",
    "item_reference",
    "max_model_len",
    "output_tokens",
    "previous_response_id",
    "prompt_tokens",
    "reasoning_details",
    "redacted_thinking",
    "server_tool_use",
    "service_tier",
    "stop_reason",
    "stop_sequences",
    "thinking_budget",
    "thinking_blocks",
    "tool_reference",
    "web_search_tool_result",
];
/// Keywords of JSON Schema that are no names of paths.
const SCHEMA_KEYWORDS: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "default",
    "definitions",
    "dependentRequired",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "title",
    "unevaluatedProperties",
    "uniqueItems",
];
/// First steps of a path that stand for the request.
const REQUEST_NAMES: [&str; 4] = ["body", "parameter", "parameters", "request"];

/// Returns true if a name is in the lists of known ones: members and types of the dialects, and JSON Schema keywords.
pub(super) fn is_protocol_name(name: &str) -> bool {
    is_step(name) || is_root(name) || NAMES.contains(&name) || SCHEMA_KEYWORDS.contains(&name)
}

/// Returns true for a path of at least two steps that are names of the protocol or indices, such as
/// `function.arguments` or `parameter.top_k`. The first step is no index.
pub(super) fn is_protocol_path(path: &str) -> bool {
    let is_index = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let is_known = |(at, step): (usize, &str)| {
        let name = step.split('[').next().unwrap_or_default();
        let is_named = match at {
            0 => is_protocol_name(name) || REQUEST_NAMES.contains(&name),
            _ => is_protocol_name(name) || is_index(name),
        };
        is_named && has_plain_indices(step)
    };
    path.contains('.') && path.split('.').enumerate().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_names_of_the_protocol_only() {
        for path in
            ["function.arguments", "parameter.top_k", "tools.0.strict", "items[0].additionalProperties"]
        {
            assert!(is_protocol_path(path), "{path}");
        }
        for path in
            ["", "function", ".", "function.", "0.1", "0.function", "function.John", "items[john].type"]
        {
            assert!(!is_protocol_path(path), "{path}");
        }
    }
}
