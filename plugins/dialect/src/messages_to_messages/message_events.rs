//! Conversion of a whole message to the events of its stream, for a client that requested a stream. The passthrough
//! forwards the events like those of a provider, so that blocks and members that only messages have are kept.

use crate::json_cursor::{elements, is_null, member_value, members};
use bytes::Bytes;
use penstock_json_scan::json;

/// Members of a message that are not in its start event, or have another value there.
const LATE_MEMBERS: [&str; 4] = ["content", "stop_reason", "stop_sequence", "stop_details"];
/// Members of a message that the event has which ends it.
const END_MEMBERS: [&str; 4] = ["stop_reason", "stop_sequence", "stop_details", "container"];
/// Members with energy that the provider measured. They are read from the event that ends the message.
const ENERGY_MEMBERS: [&str; 2] = ["energy", "impact"];

/// Returns the data of the events of a message. Each block is complete in its start event.
pub(super) fn message_events(message: &[u8]) -> Vec<Bytes> {
    let content = member_value(message, "content").unwrap_or_default();
    let mut events = vec![message_start(message)];
    for (index, block) in elements(content).enumerate() {
        let head = format!(r#"{{"type":"content_block_start","index":{index},"content_block":"#);
        events.push(Bytes::from([head.as_bytes(), block, b"}"].concat()));
        events.push(Bytes::from(format!(r#"{{"type":"content_block_stop","index":{index}}}"#)));
    }
    events.push(message_delta(message));
    events.push(Bytes::from_static(br#"{"type":"message_stop"}"#));
    events
}

fn message_start(message: &[u8]) -> Bytes {
    let mut out = br#"{"type":"message_start","message":{"#.to_vec();
    for (name, value) in members(message) {
        if !LATE_MEMBERS.contains(&&*name) && !ENERGY_MEMBERS.contains(&&*name) {
            write_member(&name, value, &mut out);
        }
    }
    write_member("content", b"[]", &mut out);
    out.extend_from_slice(b"}}");
    Bytes::from(out)
}

fn message_delta(message: &[u8]) -> Bytes {
    let mut out = br#"{"type":"message_delta","delta":{"#.to_vec();
    for (name, value) in members(message) {
        let is_required = name == "stop_sequence";
        if END_MEMBERS.contains(&&*name) && (is_required || !is_null(value)) {
            write_member(&name, value, &mut out);
        }
    }
    out.push(b'}');
    for (name, value) in members(message) {
        if name == "usage" || ENERGY_MEMBERS.contains(&&*name) {
            write_member(&name, value, &mut out);
        }
    }
    out.push(b'}');
    Bytes::from(out)
}

/// Writes the next member of an object.
pub(super) fn write_member(name: &str, value: &[u8], out: &mut Vec<u8>) {
    json::write_member_name(out, name);
    out.extend_from_slice(value);
}
