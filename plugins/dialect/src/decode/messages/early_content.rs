//! Content in a `message_start` event: some engines begin a message with blocks that have no events of their own.

use super::EventMembers;
use crate::json_cursor;
use bytes::Bytes;
use penstock_json_scan::json;

/// Splits a `message_start` event that has content: into a `message_start` without content, and a start and a stop
/// event for each block. Returns `None` for any other event.
pub(crate) fn split_message_start(data: &[u8], members: &EventMembers<'_>) -> Option<Vec<Bytes>> {
    let message = members.message.filter(|_| members.event_type == "message_start")?;
    let content = json_cursor::member_value(message, "content").filter(|list| json_cursor::is_array(list))?;
    json_cursor::elements(content).next()?;
    let without_content = with_member(message, "content", b"[]");
    let mut events = vec![Bytes::from(with_member(data, "message", &without_content))];
    for (index, block) in json_cursor::elements(content).enumerate() {
        let start = format!(r#"{{"type":"content_block_start","index":{index},"content_block":"#);
        events.push([start.as_bytes(), block, b"}"].concat().into());
        events.push(format!(r#"{{"type":"content_block_stop","index":{index}}}"#).into());
    }
    Some(events)
}

/// Returns a copy of the object in which the member `name` has the new value. The object must have this member.
fn with_member(object: &[u8], name: &str, new_value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len());
    for (key, value) in json_cursor::members(object) {
        out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
        json::write_escaped(&mut out, &key);
        out.extend_from_slice(b"\":");
        out.extend_from_slice(if key == name { new_value } else { value });
    }
    out.push(b'}');
    out
}
