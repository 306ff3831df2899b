//! Decoder of the responses dialect.
//!
//! The order of events is checked where it affects the meaning: deltas come only for an open item of their kind. The
//! rest of a text, beyond what the deltas had, is taken from the event that ends a part, an item or the response, or
//! else from the event that starts an item. If an end event contradicts the deltas, the stream is malformed. Unknown
//! events and items, such as the calls of tools that a provider runs itself, are ignored.
//!
//! Engines number items and parts in different ways, some not at all, and some with other numbers in the end events
//! than in the deltas. An item is therefore found by its id or its index, whichever is known, and a text is compared
//! with the text that was emitted, not only with that of the same index.

#[cfg(test)]
mod bounds_tests;
mod buffered;
mod context;
mod event_members;
mod item;
mod item_reference;
#[cfg(test)]
mod missing_text_tests;
mod output;
mod part;
#[cfg(test)]
mod tests;
mod text_record;
#[cfg(test)]
mod variant_tests;

pub use buffered::decode_response;

use super::{BodyToSseConverter, parse_finish_word, to_truncation_error};
use crate::classify;
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use bytes::Bytes;
use event_members::EventMembers;
use output::DecodedOutput;
use part::PartEvent;
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
            _ if self.started => {}
            _ => {
                self.start_late(members)?;
                events.push(AnswerEvent::Start);
            }
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

    /// Starts the answer at an event that some engines send without `response.created` before it. The event that ends
    /// the response must then have its output.
    fn start_late(&mut self, members: &EventMembers<'_>) -> Result<(), UpstreamError> {
        let name = members.event_type.strip_prefix("response.").ok_or_else(malformed_error)?;
        if matches!(name, "completed" | "incomplete" | "cancelled") {
            let output = json_cursor::member_value(members.response_object()?, "output");
            output.filter(|output| json_cursor::is_array(output)).ok_or_else(malformed_error)?;
        }
        self.started = true;
        Ok(())
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
        self.body_converter.buffered_bytes() + self.sse.buffered_bytes() + self.output.stored_bytes()
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
///
/// # Errors
/// Returns the errors of [`parse_finish_word`], so an engine that aborted has not answered.
fn incomplete_reason(reason: &str) -> Result<FinishReason, UpstreamError> {
    Ok(match parse_finish_word(reason)? {
        FinishReason::Stop | FinishReason::ToolCalls => FinishReason::Length,
        reason => reason,
    })
}
