//! Conversion of the stream of a message to the whole message, for a client that did not request a stream. Blocks and
//! members that only messages have are kept.

use super::message_events::write_member;
use crate::decode::messages::{DeltaKind, DeltaMembers, EventMembers, MessagesDecoder, split_message_start};
use crate::decode::{BodyToSseConverter, MAX_EVENT_BYTES};
use crate::json_cursor::{elements, is_null, is_object, member_value, members, string_body};
use bytes::Bytes;
use penstock_http_wire::sse;
use penstock_json_scan::json;
use std::borrow::Cow;
use std::collections::HashMap;

/// Returns the message whose events are in `body`; `None` if they are no complete message, so that it has to be written
/// anew. `seed` is the unique part of the answer's id.
pub(super) fn collect_message(body: &Bytes, seed: &str) -> Option<Bytes> {
    let mut decoder = MessagesDecoder::new(seed);
    let mut message = CollectedMessage::default();
    let mut stream = sse::SseDecoder::new(MAX_EVENT_BYTES);
    stream.push(BodyToSseConverter::default().push(body.clone(), MAX_EVENT_BYTES).ok()??);
    let mut collect = |data: Bytes| {
        let seen = EventMembers::parse(&data);
        if json::trim(&data).is_empty() || message.is_ended {
            return Some(());
        }
        let parts = split_message_start(&data, &seen).unwrap_or_else(|| vec![data.clone()]);
        for part in parts {
            let ordered = decoder.sequence_blocks(&part, &EventMembers::parse(&part)).ok()?;
            for data in ordered.unwrap_or_else(|| vec![part]) {
                message.add_event(&data)?;
            }
        }
        Some(())
    };
    while let Some(event) = stream.next() {
        collect(event.ok()?.data)?;
    }
    if let Some(event) = stream.end() {
        collect(event.data)?;
    }
    message.finish().map(Bytes::from)
}

/// Message whose events have arrived.
#[derive(Debug, Default)]
struct CollectedMessage {
    /// Object `message` of the start event.
    start: Option<Bytes>,
    blocks: Vec<CollectedBlock>,
    /// Members `delta` and `usage` of the events that end the message.
    ends: Vec<(Bytes, Option<Bytes>)>,
    is_ended: bool,
}

/// Block with the content of its deltas: bodies of JSON strings, and elements of a JSON array.
#[derive(Debug)]
struct CollectedBlock {
    start: Bytes,
    text: Vec<u8>,
    input: Vec<u8>,
    signature: Option<Bytes>,
    citations: Vec<u8>,
    /// Content of a summary of the conversation.
    summary: Option<Bytes>,
}

impl CollectedMessage {
    /// Adds an event; its block is the last one. Returns `None` for an event that cannot be part of a message.
    fn add_event(&mut self, data: &Bytes) -> Option<()> {
        let seen = EventMembers::parse(data);
        let shared = |value: &[u8]| data.slice_ref(value);
        match &*seen.event_type {
            "message_start" => self.start = self.start.take().or(seen.message.map(shared)),
            "content_block_start" => self.blocks.push(CollectedBlock {
                start: shared(seen.content_block.filter(|block| is_object(block))?),
                text: Vec::new(),
                input: Vec::new(),
                signature: None,
                citations: Vec::new(),
                summary: None,
            }),
            "content_block_delta" => self.blocks.last_mut()?.add_delta(data, seen.delta?)?,
            "message_delta" => {
                let usage = member_value(data, "usage").filter(|usage| is_object(usage));
                self.ends.push((shared(seen.delta?), usage.map(shared)));
            }
            "message_stop" => self.is_ended = true,
            _ => {}
        }
        Some(())
    }

    /// Writes the whole message. Returns `None` without a start, and if a tool input is not one JSON object.
    fn finish(&self) -> Option<Vec<u8>> {
        let start = self.start.as_deref().filter(|start| is_object(start))?;
        let content = self.content()?;
        let first_usage = member_value(start, "usage").filter(|usage| is_object(usage));
        let later_usage = self.ends.iter().filter_map(|(_, usage)| usage.as_deref());
        let mut usage = vec![b'{'];
        for (name, value) in merged_members(first_usage.into_iter().chain(later_usage)) {
            write_member(&name, value, &mut usage);
        }
        usage.push(b'}');
        let own: &[u8] = br#"{"content":[],"usage":{}}"#;
        let deltas = self.ends.iter().map(|(delta, _)| &**delta);
        let mut out = vec![b'{'];
        for (name, value) in merged_members([start].into_iter().chain(deltas).chain([own])) {
            match &*name {
                "content" => write_member("content", &content, &mut out),
                "usage" if usage.len() == 2 => {}
                "usage" => write_member("usage", &usage, &mut out),
                _ => write_member(&name, value, &mut out),
            }
        }
        out.push(b'}');
        Some(out)
    }

    /// Returns the list of the blocks; `None` if a tool input is not one JSON object.
    fn content(&self) -> Option<Vec<u8>> {
        let mut content = vec![b'['];
        for (at, block) in self.blocks.iter().enumerate() {
            content.extend_from_slice(if at > 0 { b"," } else { b"" });
            block.write(&mut content)?;
        }
        content.push(b']');
        Some(content)
    }
}

/// Returns the members of objects in the order in which their names appear first. Of several values, the last one that
/// is not null counts.
fn merged_members<'a>(objects: impl Iterator<Item = &'a [u8]>) -> Vec<(Cow<'a, str>, &'a [u8])> {
    let (mut merged, mut positions) = (Vec::<(Cow<'a, str>, &[u8])>::new(), HashMap::new());
    for (name, value) in objects.flat_map(members) {
        let at = *positions.entry(name.clone()).or_insert(merged.len());
        match merged.get_mut(at) {
            Some((_, known)) if !is_null(value) => *known = value,
            Some(_) => {}
            None => merged.push((name, value)),
        }
    }
    merged
}

impl CollectedBlock {
    fn add_delta(&mut self, data: &Bytes, delta: &[u8]) -> Option<()> {
        let seen = DeltaMembers::parse(delta)?;
        let body = || seen.content.filter(|content| !is_null(content)).map_or(Some(&b""[..]), string_body);
        match seen.kind {
            DeltaKind::Text | DeltaKind::Thinking => self.text.extend_from_slice(body()?),
            DeltaKind::InputJson => self.input.extend_from_slice(body()?),
            DeltaKind::Signature => self.signature = seen.content.map(|seal| data.slice_ref(seal)),
            DeltaKind::Other => {
                if let Some(citation) = member_value(delta, "citation") {
                    self.citations.extend_from_slice(if self.citations.is_empty() { b"" } else { b"," });
                    self.citations.extend_from_slice(citation);
                }
                self.summary =
                    member_value(delta, "content").map(|text| data.slice_ref(text)).or(self.summary.take());
            }
            DeltaKind::Unknown => {}
        }
        Some(())
    }

    /// Writes the block. Returns `None` if its input is not one JSON object.
    fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(b'{');
        let text_member = ["text", "thinking"].into_iter().find(|name| {
            member_value(&self.start, "type").is_some_and(|kind| json::json_string_equals(kind, name))
        });
        for (name, value) in members(&self.start) {
            let is_replaced = match &*name {
                "input" => !self.input.is_empty(),
                "signature" => self.signature.is_some(),
                "citations" => !self.citations.is_empty(),
                "content" => self.summary.is_some(),
                name => Some(name) == text_member,
            };
            if !is_replaced {
                write_member(&name, value, out);
            }
        }
        if let Some(name) = text_member {
            let first = member_value(&self.start, name).map_or(Some(&b""[..]), string_body)?;
            write_member(name, &[b"\"", first, &self.text, b"\""].concat(), out);
        }
        if !self.input.is_empty() {
            let input = json::unescape(&self.input)?;
            let input = json::trim(input.as_bytes());
            (is_object(input) && json::value_end(input, 0) == Some(input.len())).then_some(())?;
            write_member("input", input, out);
        }
        if let Some(seal) = &self.signature {
            write_member("signature", seal, out);
        }
        if !self.citations.is_empty() {
            let first = member_value(&self.start, "citations").unwrap_or_default();
            let first: Vec<&[u8]> = elements(first).collect();
            let list = first.into_iter().chain([&self.citations[..]]).collect::<Vec<_>>().join(&b","[..]);
            write_member("citations", &[b"[", &list[..], b"]"].concat(), out);
        }
        if let Some(summary) = &self.summary {
            write_member("content", summary, out);
        }
        out.push(b'}');
        Some(())
    }
}
