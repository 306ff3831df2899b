//! Tool calls with truncated arguments in a conversation: engines fail on them.

use crate::json_cursor;
use penstock_core::{ApiError, ErrorCode};
use penstock_json_scan::json;

/// Returns the path of the first tool-call arguments in a chat or responses request that are neither a JSON object nor
/// empty nor `null`; `None` without such arguments.
pub(super) fn find_truncated_call(request: &[u8]) -> Option<String> {
    let list = |name| json_cursor::elements(json_cursor::member_value(request, name).unwrap_or_default());
    for (index, message) in list("messages").enumerate() {
        let calls = json_cursor::member_value(message, "tool_calls").unwrap_or_default();
        for (position, call) in json_cursor::elements(calls).enumerate() {
            let function = json_cursor::member_value(call, "function").unwrap_or_default();
            if has_truncated_arguments(function) {
                return Some(format!("messages[{index}].tool_calls[{position}].function.arguments"));
            }
        }
    }
    let at = list("input").position(has_truncated_arguments)?;
    Some(format!("input[{at}].arguments"))
}

/// Returns the error for a client whose conversation has a truncated tool call. It names the path of the arguments if
/// they are in the client's body, and no path if they are in a stored response that the request continues.
pub(super) fn truncated_call_error(client_body: &[u8]) -> ApiError {
    let fails = "the arguments are no JSON object, and the model's provider fails on them.";
    match find_truncated_call(client_body) {
        Some(path) => {
            let sentence = format!("{path}: {fails}");
            ApiError::invalid(path, sentence)
        }
        None => ApiError::with_message(
            ErrorCode::InvalidRequest,
            format!("Of a tool call in the conversation, {fails}"),
        ),
    }
}

fn has_truncated_arguments(call: &[u8]) -> bool {
    json_cursor::member_value(call, "arguments")
        .and_then(json_cursor::parse_string)
        .is_some_and(|arguments| !is_complete_object(&arguments))
}

/// Returns true if arguments are an object, empty, or `null`, which is sent as an empty object.
fn is_complete_object(arguments: &str) -> bool {
    if arguments.trim() == "null" {
        return true;
    }
    let mut members = json::members(arguments.as_bytes());
    members.by_ref().for_each(drop);
    arguments.trim().is_empty() || members.is_complete()
}
