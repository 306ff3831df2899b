//! Tool calls with truncated arguments in a conversation: engines answer them with 500.

use crate::scan;
use penstock_wire::json;

/// Returns the path of the first tool call of a chat request whose arguments are no JSON object.
pub(super) fn cut_call(request: &[u8]) -> Option<String> {
    let messages = scan::member(request, "messages")?;
    for (index, message) in scan::elements(messages).enumerate() {
        let calls = scan::member(message, "tool_calls").unwrap_or_default();
        for (position, call) in scan::elements(calls).enumerate() {
            let function = scan::member(call, "function").unwrap_or_default();
            if scan::member(function, "arguments")
                .and_then(scan::string)
                .is_some_and(|said| !is_object(&said))
            {
                return Some(format!("messages[{index}].tool_calls[{position}].function.arguments"));
            }
        }
    }
    None
}

/// Returns true if arguments are an object or empty.
fn is_object(arguments: &str) -> bool {
    let mut members = json::members(arguments.as_bytes());
    members.by_ref().for_each(drop);
    arguments.trim().is_empty() || members.is_whole()
}
