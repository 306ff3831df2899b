//! Decoder of the responses dialect.
//!
//! The order of events is checked where it affects the meaning: the start of the response is first, and deltas come
//! only for an open item of their kind. The rest of a text, beyond what the deltas had, is taken from the event that
//! ends a part, an item or the response, or else from the event that starts an item. If an end event contradicts the
//! deltas, the stream is malformed. Unknown events and items, such as the calls of tools that a provider runs itself,
//! are ignored.

#[cfg(test)]
mod bounds_tests;
mod buffered;
mod context;
mod event_members;
mod item;
#[cfg(test)]
mod missing_text_tests;
mod part;
#[cfg(test)]
mod tests;

pub use buffered::decode_response;

use super::text_channel::SplitSurrogate;
use super::{BodyToSseConverter, to_truncation_error};
use crate::classify;
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use bytes::Bytes;
use context::OutputContext;
use event_members::EventMembers;
use item::DecodedItem;
use part::{LastParts, PartEvent};
use penstock_core::{Dialect, FinishReason, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::sse;
use penstock_json_scan::json;

/// Maximum number of output items.
const MAX_ITEMS: usize = 1024;

/// Decoder of a streamed response.
pub struct ResponsesDecoder {
    body_converter: BodyToSseConverter,
    sse: sse::SseDecoder,
    started: bool,
    output: DecodedOutput,
}

/// Output items of the response so far.
#[derive(Debug, Default)]
struct DecodedOutput {
    items: Vec<DecodedItem>,
    tool_count: u32,
    /// True if a message has text.
    has_message: bool,
    split_surrogate: SplitSurrogate,
    texts: LastParts,
    /// Bytes of memory of items and parts, of arguments, and of texts from the start of items and parts, which are
    /// compared with later events.
    stored_bytes: usize,
}

impl Default for ResponsesDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponsesDecoder {
    /// Creates a decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self {
            body_converter: BodyToSseConverter::default(),
            sse: sse::SseDecoder::new(super::MAX_EVENT_BYTES),
            started: false,
            output: DecodedOutput::default(),
        }
    }

    fn decode_event(
        &mut self,
        event: &sse::SseEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        events.extend(super::comment_event(event));
        let seen = EventMembers::parse(&event.data);
        if let Some(error) = super::event_error(event, seen.event_type.starts_with("response.")) {
            return Err(error);
        }
        match json::trim(&event.data) {
            b"" => Ok(()),
            b"[DONE]" => {
                events.push(AnswerEvent::End);
                Ok(())
            }
            _ => self.decode_data(&event.data, &seen, events),
        }
    }

    fn decode_data(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        if !members.is_complete {
            return Err(malformed_error());
        }
        events.extend(members.measured_energy.map(AnswerEvent::Energy));
        match &*members.event_type {
            "error" => return Err(classify::classify_in_band_error(members.error.unwrap_or(data))),
            "" => return Err(members.error.map_or_else(malformed_error, classify::classify_in_band_error)),
            "ping" | "keepalive" => {
                events.push(AnswerEvent::Ping);
                return Ok(());
            }
            "response.failed" => {}
            "response.queued" | "response.created" | "response.in_progress" => {
                members.response_object()?;
                if !std::mem::replace(&mut self.started, true) {
                    events.push(AnswerEvent::Start);
                }
                return Ok(());
            }
            _ if !self.started => return Err(malformed_error()),
            _ => {}
        }
        match &*members.event_type {
            "response.output_item.added" => self.output.add_item(data, members, events),
            "response.output_item.done" => self.output.finish_item(data, members, events),
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.output.finish_response(data, members.response_object()?, events)
            }
            name => match PartEvent::parse(name) {
                Some(event) => self.output.push_part(data, members, event, events),
                None => Ok(()),
            },
        }
    }
}

impl DecodedOutput {
    fn add_item(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (index, item) = members.output_index.zip(members.item).ok_or_else(malformed_error)?;
        if self.items.iter().any(|other| other.output_index == index && other.is_open) {
            return Err(malformed_error());
        }
        let at = self.open_item(data, index, item, events)?;
        let (items, mut context) = self.parts(data, events);
        items.get_mut(at).map_or(Ok(()), |open| open.store_initial_texts(item, &mut context))
    }

    /// Opens an output item; returns its index in `items`.
    fn open_item(
        &mut self,
        data: &Bytes,
        index: u64,
        item: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<usize, UpstreamError> {
        if self.items.len() >= MAX_ITEMS {
            // Too many items are an error of the model's output, because the model decides their number.
            return Err(UpstreamError::invalid_model_output());
        }
        let (items, mut context) = self.parts(data, events);
        *context.stored_bytes += size_of::<DecodedItem>();
        items.push(DecodedItem::open(index, items.len(), item, &mut context)?);
        Ok(items.len() - 1)
    }

    /// Closes an item, and emits the rest of its content, beyond what the deltas had. An item without an opening
    /// event is opened first.
    fn finish_item(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (index, item) = members.output_index.zip(members.item).ok_or_else(malformed_error)?;
        let at = match self.items.iter().rposition(|other| other.output_index == index) {
            Some(at) => at,
            None => self.open_item(data, index, item, events)?,
        };
        self.close_item(data, at, item, events)
    }

    fn close_item(
        &mut self,
        data: &Bytes,
        position: usize,
        item: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let (items, mut context) = self.parts(data, events);
        let open = items.get_mut(position).filter(|item| item.is_open).ok_or_else(malformed_error)?;
        open.close(item, &mut context)
    }

    /// Adds the content of an event about a part.
    fn push_part(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        event: PartEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        if let (PartEvent::Delta(kind), Some(index)) = (event, members.output_index)
            && !self.items.iter().any(|item| item.output_index == index)
        {
            // The item is created here if the engine sent no event for it.
            self.open_item(data, index, kind.minimal_item_json().ok_or_else(malformed_error)?, events)?;
        }
        let find = |items: &mut Vec<DecodedItem>| {
            let index = members.output_index?;
            items.iter().rposition(|item| item.output_index == index && item.is_open)
        };
        let (items, mut context) = self.parts(data, events);
        let item = find(items).and_then(|at| items.get_mut(at));
        let (kind, text_member) = match event {
            PartEvent::Delta(kind) => (kind, "delta"),
            PartEvent::Complete(kind, member) => (kind, member),
            // An event without a known item is ignored, because most providers only repeat text in these events that
            // they have already sent.
            PartEvent::Added | PartEvent::Done => {
                let Some((item, part)) = item.zip(members.part) else { return Ok(()) };
                return match event {
                    PartEvent::Added => {
                        item.store_initial_part_text(part, |kind| members.part_index(kind), &mut context)
                    }
                    _ => item.push_complete_part(part, |kind| members.part_index(kind), &mut context),
                };
            }
        };
        let item = item.ok_or_else(malformed_error)?;
        let text = members.member_text(text_member).ok_or_else(malformed_error)?;
        let part = (kind, members.part_index(kind).ok_or_else(malformed_error)?);
        match event {
            PartEvent::Delta(_) => item.push_delta(part, text, members.logprobs, &mut context),
            _ => item.push_complete_text(part, text, members.logprobs, &mut context),
        }
    }

    /// Handles the last event: the usage, the finish reason, and output that no earlier event contained.
    fn finish_response(
        &mut self,
        data: &Bytes,
        response: &[u8],
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let end = buffered::ResponseEnd::parse(response)?;
        self.push_output(data, end.output, events)?;
        events.extend(end.measured_energy.map(AnswerEvent::Energy));
        events.extend(end.usage.map(AnswerEvent::Usage));
        if let Some(reason) = end.finish_reason(self.tool_count > 0) {
            events.push(AnswerEvent::Finish { choice: 0, reason, stop_sequence: None });
        }
        events.push(AnswerEvent::End);
        Ok(())
    }

    /// Emits the rest of each text of the complete items in `output`, beyond what the deltas had. Then emits the
    /// texts from the start of items that `output` does not repeat. Returns `ModelOutput` for more than [`MAX_ITEMS`]
    /// items.
    fn push_output(
        &mut self,
        source: &Bytes,
        output: Option<&[u8]>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let items = json_cursor::elements(output.unwrap_or_default());
        let complete: Vec<&[u8]> = items.take(MAX_ITEMS + 1).collect();
        if complete.len() > MAX_ITEMS {
            return Err(UpstreamError::invalid_model_output());
        }
        let known = self.match_items(&complete);
        for ((index, item), known) in (0_u64..).zip(complete).zip(known) {
            match known {
                Some(at) => {
                    let (items, mut context) = self.parts(source, events);
                    let known = items.get_mut(at).ok_or_else(malformed_error)?;
                    known.emit_missing_texts(item, &mut context)?;
                }
                None => {
                    let at = self.open_item(source, index, item, events)?;
                    self.close_item(source, at, item, events)?;
                }
            }
        }
        let (items, mut context) = self.parts(source, events);
        items.iter_mut().try_for_each(|item| item.emit_initial_texts(&mut context))
    }

    /// Returns for each complete item the position of the known item to which it belongs: the item of its type with the
    /// same index, or else the first item of its type that no other complete item has; `None` for a new item. Ids are
    /// not compared, because some engines change them between events.
    fn match_items(&self, complete: &[&[u8]]) -> Vec<Option<usize>> {
        let types: Vec<_> = complete
            .iter()
            .map(|item| json_cursor::member_value(item, "type").and_then(json_cursor::parse_string))
            .collect();
        let mut found = vec![None; complete.len()];
        let mut is_taken = vec![false; self.items.len()];
        for by_index in [true, false] {
            for ((index, name), found) in (0_u64..).zip(&types).zip(&mut found) {
                let Some(name) = name.as_deref().filter(|_| found.is_none()) else { continue };
                let fits = |(item, taken): (&DecodedItem, &bool)| {
                    !taken && (!by_index || item.output_index == index) && item.has_type(name)
                };
                *found = self.items.iter().zip(&is_taken).position(fits);
                if let Some(taken) = found.and_then(|at| is_taken.get_mut(at)) {
                    *taken = true;
                }
            }
        }
        found
    }

    /// Returns the items together with the context for adding content to them.
    fn parts<'a>(
        &'a mut self,
        source: &'a Bytes,
        events: &'a mut Vec<AnswerEvent>,
    ) -> (&'a mut Vec<DecodedItem>, OutputContext<'a>) {
        let Self { items, tool_count, has_message, split_surrogate, texts, stored_bytes } = self;
        let context =
            OutputContext { source, tool_count, has_message, split_surrogate, texts, stored_bytes, events };
        (items, context)
    }
}

impl super::DialectDecoder for ResponsesDecoder {
    fn push(&mut self, bytes: Bytes, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
        let Some(bytes) = self.body_converter.push(bytes, super::MAX_EVENT_BYTES)? else { return Ok(()) };
        self.sse.push(bytes);
        while let Some(event) = self.sse.next() {
            let event = event.map_err(|sse::EventTooLong| malformed_error())?;
            self.decode_event(&event, events)?;
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
        if let Some(object) = self.body_converter.take_buffered_object() {
            return super::decode_closed_object(Dialect::Responses, object, "", events).map(drop);
        }
        let Some(event) = self.sse.end() else { return Ok(()) };
        self.decode_event(&event, events).map_err(to_truncation_error)
    }

    fn buffered_bytes(&self) -> usize {
        self.body_converter.buffered_bytes() + self.sse.buffered_bytes() + self.output.stored_bytes
    }
}

fn malformed_error() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Malformed)
}

/// Returns a string of an event as text that shares the memory of the event.
fn event_text(source: &Bytes, value: &[u8]) -> Result<EscapedText, UpstreamError> {
    let inside = json_cursor::string_body(value).ok_or_else(malformed_error)?;
    EscapedText::from_json(source.slice_ref(inside)).ok_or_else(malformed_error)
}

/// Parses the reason of an incomplete response, including the spellings of engines. An unknown reason is read as
/// `Length`, because a truncated answer must not look complete.
fn incomplete_reason(reason: &str) -> FinishReason {
    match reason {
        "content_filter" | "safety" => FinishReason::ContentFilter,
        "context_window" | "context_length" | "max_context_length" => FinishReason::ContextWindow,
        _ => FinishReason::Length,
    }
}
