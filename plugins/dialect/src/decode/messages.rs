//! Decoder of the messages dialect.
//!
//! The order of events is checked where it affects the meaning: `message_start` is first, and deltas come only for an
//! open block. Unknown events and blocks are ignored.

mod block_content;
mod block_sequencer;
mod block_texts;
mod buffered;
mod delta_members;
mod early_content;
mod event_members;
mod sequenced_block;
mod stop_reason;
mod usage_counter;

#[cfg(test)]
mod block_sequencer_tests;
#[cfg(test)]
mod early_content_tests;
#[cfg(test)]
mod odd_block_tests;
#[cfg(test)]
mod tests;

pub use buffered::decode_message;
pub(crate) use buffered::without_lone_surrogates;
pub(crate) use delta_members::{DeltaKind, DeltaMembers};
pub(crate) use early_content::split_message_start;
pub(crate) use event_members::EventMembers;

use super::{BodyToSseConverter, to_truncation_error};
use crate::body_builder::shared_slice;
use crate::classify;
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use block_content::{block_type, event_text, input_as_text, push_text, sealed_event, tool_id_and_name};
use block_sequencer::{BlockSequencer, MAX_BLOCKS};
use bytes::Bytes;
use penstock_core::{Dialect, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::sse;
use stop_reason::finish_event;
use usage_counter::UsageCounter;

/// Decoder of a streamed message.
pub struct MessagesDecoder {
    body_converter: BodyToSseConverter,
    sse: sse::SseDecoder,
    started: bool,
    /// Seed of generated tool call ids.
    seed: String,
    sequencer: BlockSequencer,
    /// Content blocks in order; the position is the index.
    blocks: Vec<DecodedBlock>,
    tool_count: u32,
    /// Total bytes of the `initial_input` of all blocks.
    buffered_input_bytes: usize,
    usage_counter: UsageCounter,
}

/// Content block of the stream.
#[derive(Default)]
struct DecodedBlock {
    kind: DecodedBlockKind,
    is_open: bool,
    /// Input of a tool call from its start event; removed when a delta that is not empty arrives, or when the block
    /// ends.
    initial_input: Option<Bytes>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum DecodedBlockKind {
    Text,
    Thinking,
    Tool(u32),
    /// Content block of a type that no client dialect has.
    #[default]
    Other,
}

impl MessagesDecoder {
    /// Creates a decoder at the start of a stream. `seed` is the seed of generated tool call ids.
    #[must_use]
    pub fn new(seed: &str) -> Self {
        Self {
            body_converter: BodyToSseConverter::default(),
            sse: sse::SseDecoder::new(super::MAX_EVENT_BYTES),
            started: false,
            seed: seed.to_owned(),
            sequencer: BlockSequencer::default(),
            blocks: Vec::new(),
            tool_count: 0,
            buffered_input_bytes: 0,
            usage_counter: UsageCounter::default(),
        }
    }

    /// Returns the number of bytes that are stored of blocks: the events of blocks that wait, and the tool inputs from
    /// start events of open blocks for which no input delta that is not empty has arrived.
    pub(crate) const fn stored_block_bytes(&self) -> usize {
        self.buffered_input_bytes + self.sequencer.stored_bytes()
    }

    /// Returns the data of the events to decode and to forward instead of an event, possibly none; `None` if the event
    /// is unchanged. Afterwards one block is open at a time, and indices are consecutive.
    ///
    /// # Errors
    /// Returns `Malformed` for an event about a block that has not started or has ended, and `ModelOutput` if too many
    /// bytes wait.
    pub(crate) fn sequence_blocks(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
    ) -> Result<Option<Vec<Bytes>>, UpstreamError> {
        self.sequencer.apply(data, members)
    }

    /// Ends the open block at the end of a stream that has no end of the message. Returns the index of the block and
    /// the data of its stop event; `None` if no block is open.
    pub(crate) fn end_open_block(&mut self) -> Option<(usize, Bytes)> {
        self.sequencer.end_stream()
    }

    /// Decodes one event.
    fn decode_event(
        &mut self,
        event: &sse::SseEvent,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        events.extend(super::comment_event(event));
        let seen = EventMembers::parse(&event.data);
        if let Some(error) = super::event_error(event, seen.has_known_type()) {
            return Err(error);
        }
        if penstock_json_scan::json::trim(&event.data).is_empty() {
            return Ok(());
        }
        let Some(parts) = split_message_start(&event.data, &seen).filter(|_| !self.started) else {
            return self.decode_unordered(&event.data, &seen, events);
        };
        parts.iter().try_for_each(|data| self.decode_unordered(data, &EventMembers::parse(data), events))
    }

    /// Decodes the data of one event of the provider, given its members.
    fn decode_unordered(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let Some(parts) = self.sequence_blocks(data, members)? else {
            return self.decode_members(data, members, events);
        };
        parts.iter().try_for_each(|data| self.decode_members(data, &EventMembers::parse(data), events))
    }

    /// Decodes the data of one event, given its members. The events of blocks must be in order (see
    /// [`Self::sequence_blocks`]).
    ///
    /// # Errors
    /// Returns the errors of [`super::DialectDecoder::push`].
    pub(crate) fn decode_members(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        events.extend(members.measured_energy.map(AnswerEvent::Energy));
        match &*members.event_type {
            "error" => Err(classify::classify_in_band_error(data)),
            // Servers of another dialect, and proxies, send error objects without the member `type`.
            "" if members.error.is_some() => Err(classify::classify_in_band_error(data)),
            "ping" => {
                events.push(AnswerEvent::Ping);
                Ok(())
            }
            "message_start" if !self.started => {
                self.started = true;
                events.push(AnswerEvent::Start);
                if members.message.is_some_and(|message| !json_cursor::is_object(message)) {
                    return Err(malformed_error());
                }
                let usage = members.message.and_then(|message| json_cursor::member_value(message, "usage"));
                self.update_usage(usage, UsageCounter::merge_start, events);
                Ok(())
            }
            "" | "message_start" => Err(malformed_error()),
            _ if !self.started => Err(malformed_error()),
            "content_block_start" => self.start_block(data, members, events),
            "content_block_delta" => self.append_block_delta(data, members, events),
            "content_block_stop" => self.finish_block(members, events),
            "message_delta" => self.decode_message_delta(data, members, events),
            "message_stop" => {
                events.push(AnswerEvent::End);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn start_block(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let block = members.content_block.ok_or_else(malformed_error)?;
        if members.index != Some(self.blocks.len()) || self.blocks.len() > MAX_BLOCKS {
            return Err(malformed_error());
        }
        let mut open = DecodedBlock { is_open: true, ..DecodedBlock::default() };
        match &*block_type(block)? {
            "text" => {
                open.kind = DecodedBlockKind::Text;
                push_text(event_text(data, json_cursor::member_value(block, "text"))?, events);
            }
            "thinking" => {
                open.kind = DecodedBlockKind::Thinking;
                let text = event_text(data, json_cursor::member_value(block, "thinking"))?;
                if !text.is_empty() {
                    events.push(AnswerEvent::Reasoning { choice: 0, text, signature: None });
                }
            }
            "tool_use" => {
                let tool = self.tool_count;
                let (id, name) = tool_id_and_name(data, block, &self.seed, tool)?;
                if tool as usize >= super::MAX_TOOL_CALLS {
                    return Err(UpstreamError::invalid_model_output());
                }
                self.tool_count += 1;
                open.kind = DecodedBlockKind::Tool(tool);
                let input = json_cursor::member_value(block, "input");
                if input.is_some_and(|input| !json_cursor::is_object(input)) {
                    return Err(malformed_error());
                }
                let input = input.filter(|input| json_cursor::members(input).next().is_some());
                open.initial_input = input.and_then(|input| shared_slice(data, input));
                self.buffered_input_bytes += open.initial_input.as_ref().map_or(0, Bytes::len);
                events.push(AnswerEvent::ToolCallStart { choice: 0, tool, id, name });
            }
            "redacted_thinking" => events.extend(sealed_event(block)),
            _ => {}
        }
        self.blocks.push(open);
        Ok(())
    }

    fn append_block_delta(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let block = find_open_block(&mut self.blocks, members);
        let (block, delta) = block.zip(members.delta).ok_or_else(malformed_error)?;
        let delta = DeltaMembers::parse(delta).ok_or_else(malformed_error)?;
        let content = delta.content;
        if delta.kind.is_string() && content.is_none() {
            return Err(malformed_error());
        }
        match (delta.kind, block.kind) {
            (DeltaKind::Text, DecodedBlockKind::Text) => push_text(event_text(data, content)?, events),
            (DeltaKind::Thinking, DecodedBlockKind::Thinking) => {
                let text = event_text(data, content)?;
                if !text.is_empty() {
                    events.push(AnswerEvent::Reasoning { choice: 0, text, signature: None });
                }
            }
            (DeltaKind::Signature, DecodedBlockKind::Thinking) => {
                let signature = Some(event_text(data, content)?).filter(|seal| !seal.is_empty());
                if signature.is_some() {
                    events.push(AnswerEvent::Reasoning {
                        choice: 0,
                        text: EscapedText::default(),
                        signature,
                    });
                }
            }
            (DeltaKind::InputJson, DecodedBlockKind::Tool(tool)) => {
                let fragment = event_text(data, content)?;
                if !fragment.is_empty() {
                    self.buffered_input_bytes -= block.initial_input.take().map_or(0, |input| input.len());
                    events.push(AnswerEvent::ToolCallArguments { choice: 0, tool, fragment });
                }
            }
            (
                DeltaKind::Text | DeltaKind::Thinking | DeltaKind::InputJson,
                DecodedBlockKind::Text | DecodedBlockKind::Thinking | DecodedBlockKind::Tool(_),
            ) => {
                return Err(malformed_error());
            }
            _ => {}
        }
        Ok(())
    }

    fn finish_block(
        &mut self,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        let block = find_open_block(&mut self.blocks, members).ok_or_else(malformed_error)?;
        block.is_open = false;
        if let (DecodedBlockKind::Tool(tool), Some(input)) = (block.kind, block.initial_input.take()) {
            self.buffered_input_bytes -= input.len();
            events.push(AnswerEvent::ToolCallArguments { choice: 0, tool, fragment: input_as_text(&input)? });
        }
        Ok(())
    }

    fn decode_message_delta(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        self.update_usage(members.usage, UsageCounter::merge, events);
        let delta =
            members.delta.filter(|delta| json_cursor::is_object(delta)).ok_or_else(malformed_error)?;
        events.extend(finish_event(data, delta)?);
        Ok(())
    }

    fn update_usage(
        &mut self,
        usage: Option<&[u8]>,
        count_usage: fn(&mut UsageCounter, &[u8]),
        events: &mut Vec<AnswerEvent>,
    ) {
        if let Some(usage) = usage.filter(|usage| json_cursor::is_object(usage)) {
            count_usage(&mut self.usage_counter, usage);
            events.extend(self.usage_counter.reported_usage().map(AnswerEvent::Usage));
        }
    }
}

impl super::DialectDecoder for MessagesDecoder {
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
            return super::decode_closed_object(Dialect::Messages, object, &self.seed, events).map(drop);
        }
        let Some(event) = self.sse.end() else { return Ok(()) };
        self.decode_event(&event, events).map_err(to_truncation_error)
    }

    fn buffered_bytes(&self) -> usize {
        self.body_converter.buffered_bytes() + self.sse.buffered_bytes() + self.stored_block_bytes()
    }
}

fn find_open_block<'b>(
    blocks: &'b mut [DecodedBlock],
    members: &EventMembers<'_>,
) -> Option<&'b mut DecodedBlock> {
    blocks.get_mut(members.index?).filter(|block| block.is_open)
}

fn malformed_error() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Malformed)
}
