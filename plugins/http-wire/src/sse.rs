//! Server-sent events: incremental decoding, and encoding.

mod decode;
#[cfg(test)]
mod tests;

pub use decode::{EventTooLong, SseDecoder, SseEvent};

use bytes::Bytes;

/// Encodes an event without a name: `data: <json>` and a blank line. `json` must not contain a line break.
#[must_use]
pub fn encode_data_event(json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}

/// Encodes an event with a name: `event: <name>`, `data: <json>` and a blank line. Neither may contain a line break.
#[must_use]
pub fn encode_named_event(name: &str, json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(name.len() + json.len() + 16);
    event.extend_from_slice(b"event: ");
    event.extend_from_slice(name.as_bytes());
    event.extend_from_slice(b"\ndata: ");
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}
