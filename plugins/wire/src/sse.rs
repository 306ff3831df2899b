//! Server-sent events: decoding however the bytes were cut, and framing.

mod decode;
#[cfg(test)]
mod tests;

pub use decode::{Decoder, Event, TooLong};

use bytes::Bytes;

/// `data: <json>` and a blank line. `json` must hold no line break.
#[must_use]
pub fn data_event(json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(json.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}

/// `event: <name>`, `data: <json>` and a blank line. Neither may hold a line break.
#[must_use]
pub fn named_event(name: &str, json: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(name.len() + json.len() + 16);
    event.extend_from_slice(b"event: ");
    event.extend_from_slice(name.as_bytes());
    event.extend_from_slice(b"\ndata: ");
    event.extend_from_slice(json);
    event.extend_from_slice(b"\n\n");
    Bytes::from(event)
}
