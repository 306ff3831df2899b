//! Memory of an output item: its bytes, and the copies of its text.

use super::custom_input::CustomInputReader;
use super::item::{ItemBody, ItemStatus, OutputItem};
use super::part::MessagePart;
use penstock_core::encode_opaque_reasoning;
use penstock_json_scan::json;

/// Maximum number of events that repeat the text of an item when it is closed.
const CLOSING_EVENTS: usize = 3;

impl OutputItem {
    /// Returns the number of bytes of memory of the item.
    pub(super) fn buffered_bytes(&self) -> usize {
        let content = match &self.body {
            ItemBody::Message(parts) => {
                self.closed_part_bytes + parts.last().map_or(0, MessagePart::buffered_bytes)
            }
            ItemBody::Reasoning { text, sealed, .. } => {
                // The sealed text is counted before it is made.
                text.len() + sealed.as_ref().map_or(0, |_| text.len().div_ceil(3) * 4)
            }
            ItemBody::Call(call) => {
                call.text.len()
                    + call.custom_input_reader.as_ref().map_or(0, CustomInputReader::pending_bytes)
            }
        };
        size_of::<Self>() + content
    }

    /// Returns an upper estimate of the bytes that the last events copy for this item: those that close it, and the
    /// response. Long texts are shared and not copied.
    pub(super) fn end_bytes(&self) -> usize {
        let copied = match &self.body {
            ItemBody::Message(parts) => parts.iter().map(MessagePart::copied_bytes).sum(),
            ItemBody::Reasoning { text, .. } => text.copied_bytes() * 3,
            ItemBody::Call(call) => call.text.copied_bytes(),
        };
        let events = if self.status == ItemStatus::Open { CLOSING_EVENTS + 1 } else { 1 };
        (size_of::<Self>() + copied) * events
    }

    /// Makes the text shareable after its last byte.
    pub(super) fn share_text(&mut self) {
        match &mut self.body {
            ItemBody::Message(parts) => {
                if let Some(part) = parts.last_mut() {
                    part.share();
                }
            }
            ItemBody::Reasoning { text, sealed, .. } => {
                if let Some(sealed) = sealed.as_mut().filter(|sealed| sealed.is_empty()) {
                    let plain = json::unescape(text).unwrap_or_default();
                    sealed.growing().extend_from_slice(encode_opaque_reasoning(&plain).as_bytes());
                    sealed.share();
                }
                text.share();
            }
            ItemBody::Call(call) => call.text.share(),
        }
    }
}
