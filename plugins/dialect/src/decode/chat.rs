//! Tolerant decoder of the chat-completions dialect: engines differ in nearly every detail, and every unambiguous
//! variant is accepted.

mod chunk;
mod fast_path;
mod finish_reason;
#[cfg(test)]
mod parallel_tests;
#[cfg(test)]
mod tests;
mod tool_calls;
#[cfg(test)]
mod variant_tests;

pub(crate) use tool_calls::generate_call_id;

use super::{BodyToSseConverter, to_truncation_error};
use crate::event::AnswerEvent;
use bytes::Bytes;
use chunk::ChunkReader;
use fast_path::ChunkFrame;
use penstock_core::{Dialect, ReasoningName, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::sse;
use penstock_json_scan::json;
use tool_calls::begins_object;

/// Decoder of a streamed completion.
pub struct ChatDecoder {
    body_converter: BodyToSseConverter,
    sse: sse::SseDecoder,
    chunks: ChunkReader,
    /// Frame of the last fully decoded chunk, for the fast path; `None` if that chunk contained anything but one text.
    frame: Option<ChunkFrame>,
    /// Name of the reasoning member in a buffered completion; `None` for a stream.
    buffered_reasoning: Option<ReasoningName>,
    started: bool,
}

impl ChatDecoder {
    /// Creates a decoder at the start of a stream. `id` is the seed of generated tool call ids.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self {
            body_converter: BodyToSseConverter::default(),
            sse: sse::SseDecoder::new(super::MAX_EVENT_BYTES),
            chunks: ChunkReader::new(id, false),
            frame: None,
            buffered_reasoning: None,
            started: false,
        }
    }

    fn process_event(
        &mut self,
        event: &sse::SseEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        // Arguments that begin a JSON object are excluded from the fast path, because they may replace or repeat
        // earlier arguments.
        let is_plain = |text: &AnswerEvent| !matches!(text, AnswerEvent::ToolCallArguments { fragment, .. } if begins_object(fragment));
        let matched = self.frame.as_ref().and_then(|pattern| pattern.match_event(event));
        if let Some(text) = matched.filter(is_plain) {
            if let AnswerEvent::ToolCallArguments { choice, tool, fragment } = &text {
                self.chunks.record_fast_path_arguments(*choice, *tool, fragment);
            }
            events.push(text);
            return Ok(());
        }
        self.decode_event(event, events)
    }

    /// Decodes an event that is not on the fast path.
    fn decode_event(
        &mut self,
        event: &sse::SseEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        events.extend(super::comment_event(event));
        if let Some(error) = super::event_error(event, false) {
            return Err(error);
        }
        let data = json::trim(&event.data);
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.chunks.check_late_calls()?;
            if self.chunks.has_empty_finish() {
                events.push(AnswerEvent::EmptyFinish);
            }
            events.push(AnswerEvent::End);
            return Ok(());
        }
        if !self.started {
            self.started = true;
            events.push(AnswerEvent::Start);
        }
        let before = events.len();
        let only = self.chunks.read_chunk(&event.data, events)?;
        if event.event.is_none() {
            self.frame = ChunkFrame::from_chunk(&event.data, only, events.get(before..).unwrap_or_default());
        }
        Ok(())
    }
}

impl super::DialectDecoder for ChatDecoder {
    fn push(&mut self, bytes: Bytes, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
        let Some(bytes) = self.body_converter.push(bytes, super::MAX_EVENT_BYTES)? else { return Ok(()) };
        self.sse.push(bytes);
        while let Some(event) = self.sse.next() {
            let event =
                event.map_err(|sse::EventTooLong| UpstreamError::new(UpstreamErrorKind::Malformed))?;
            self.process_event(&event, events)?;
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<AnswerEvent>) -> Result<(), UpstreamError> {
        if let Some(object) = self.body_converter.take_buffered_object() {
            let seed = self.chunks.id_seed();
            self.buffered_reasoning = super::decode_closed_object(Dialect::Chat, object, seed, events)?;
            return Ok(());
        }
        if let Some(event) = self.sse.end() {
            self.process_event(&event, events).map_err(to_truncation_error)?;
        }
        self.chunks.check_late_calls()
    }

    fn reasoning_name(&self) -> Option<ReasoningName> {
        self.buffered_reasoning.or(self.chunks.reasoning_name())
    }

    fn has_finish_with_output(&self) -> bool {
        self.chunks.has_finish_with_output()
    }

    fn buffered_bytes(&self) -> usize {
        self.body_converter.buffered_bytes() + self.sse.buffered_bytes() + self.chunks.buffered_bytes()
    }
}

/// Appends the events of a buffered completion; returns the name of its reasoning member, if it has one. `id` is the
/// seed of generated tool call ids.
///
/// # Errors
/// Returns the errors of [`super::DialectDecoder::push`]; `Malformed` also if the body is no completion, and
/// `Truncated` if a finish reason is empty and the body has no usage.
pub fn decode_completion(
    body: Bytes,
    id: &str,
    events: &mut Vec<AnswerEvent>,
) -> Result<Option<ReasoningName>, UpstreamError> {
    events.push(AnswerEvent::Start);
    let before = events.len();
    let mut chunks = ChunkReader::new(id, true);
    chunks.read_chunk(&body, events)?;
    let is_finish = |event: &AnswerEvent| matches!(event, AnswerEvent::Finish { .. });
    if !events.iter().skip(before).any(is_finish) {
        return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
    }
    events.push(AnswerEvent::End);
    Ok(chunks.reasoning_name())
}
