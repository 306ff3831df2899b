//! Tool calls with truncated arguments in a conversation: engines answer them with 500.

use crate::json_cursor;
use penstock_json_scan::json;

/// Returns the path of the first tool call of a chat request whose arguments are no JSON object.
pub(super) fn find_truncated_call(request: &[u8]) -> Option<String> {
    let messages = json_cursor::member_value(request, "messages")?;
    for (index, message) in json_cursor::elements(messages).enumerate() {
        let calls = json_cursor::member_value(message, "tool_calls").unwrap_or_default();
        for (position, call) in json_cursor::elements(calls).enumerate() {
            let function = json_cursor::member_value(call, "function").unwrap_or_default();
            if json_cursor::member_value(function, "arguments")
                .and_then(json_cursor::parse_string)
                .is_some_and(|said| !is_complete_object(&said))
            {
                return Some(format!("messages[{index}].tool_calls[{position}].function.arguments"));
            }
        }
    }
    None
}

/// Returns true if arguments are an object or empty.
fn is_complete_object(arguments: &str) -> bool {
    let mut members = json::members(arguments.as_bytes());
    members.by_ref().for_each(drop);
    arguments.trim().is_empty() || members.is_complete()
}
