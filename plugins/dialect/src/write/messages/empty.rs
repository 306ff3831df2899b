//! Response to a request for zero tokens (`max_tokens: 0`).
//!
//! In this dialect, such a request only writes the prompt to the provider's cache. Provider APIs have no equivalent, so
//! the gateway sends no request to a provider: the message is empty, has the stop reason `max_tokens`, and reports a
//! usage of 0 tokens.

use super::MessagesStreamWriter;
use super::options::{self, WriterOptions};
use crate::event::AnswerEvent;
use crate::write::{DialectWriter as _, EventBuffer, ResponseIdentity};
use penstock_core::{FinishReason, ThinkingDisplay, TokenUsage};

/// Returns the empty message of a request for zero tokens, or all events of its stream. `objects` are JSON members
/// without braces; may be empty.
#[must_use]
pub fn write_empty_message(face: ResponseIdentity, stream: bool, objects: &[u8]) -> Vec<u8> {
    let manner = WriterOptions { identity: face, thinking: ThinkingDisplay::Off, prompt_tokens: 0 };
    if stream { write_events(manner, objects) } else { write_body(&manner, objects) }
}

fn write_events(manner: WriterOptions, objects: &[u8]) -> Vec<u8> {
    let mut out = EventBuffer::with_capacity(1024);
    let mut writer = MessagesStreamWriter::new(manner);
    writer.write(
        &AnswerEvent::Finish { choice: 0, reason: FinishReason::Length, stop_sequence: None },
        &mut out,
    );
    writer.write_end(&TokenUsage::default(), objects, &mut out);
    out.into_pieces().concat()
}

fn write_body(manner: &WriterOptions, objects: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.push(b'{');
    manner.write_identity(&mut out);
    // Example code of clients reads `content[0].text` without a check.
    out.extend_from_slice(br#","content":[{"type":"text","text":""}],"#);
    options::write_stop_members(FinishReason::Length, None, false, &mut out);
    out.extend_from_slice(br#","usage":"#);
    options::write_usage(&TokenUsage::default(), &mut out);
    if !objects.is_empty() {
        out.push(b',');
        out.extend_from_slice(objects);
    }
    out.push(b'}');
    out
}
