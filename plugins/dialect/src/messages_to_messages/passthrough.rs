//! Passthrough of the stream of a messages provider to a messages client.
//!
//! Events are forwarded after repairs, and named by their `type`, because some clients read the name and some the type.
//! Thinking that the client did not request is removed. A shadow translator reads the same stream: it tracks the
//! progress, counts the output, and writes the same answer to a buffer that is discarded, so that its state is right if
//! another provider must continue the answer. Signatures and events that open and close blocks are held until the next
//! content, so that the client and the shadow translator always have the same block open. After blocks that the shadow
//! translator numbers in another way, no other provider can continue the answer.

mod client_blocks;
mod translation;

use super::hidden_thinking::{HiddenBlocks, is_thinking_block};
use super::message_events::message_events;
use super::repair;
use crate::decode::messages::{
    DeltaKind, DeltaMembers, EventMembers, MessagesDecoder, split_message_start, without_lone_surrogates,
};
use crate::decode::{self, BodyToSseConverter};
use crate::event::AnswerEvent;
use crate::json_cursor;
use crate::response_constraints::ToolCallIds;
use crate::stream_translator::StreamTranslator;
use crate::write::messages::{self, MessagesStreamWriter, WriterOptions};
use bytes::Bytes;
use client_blocks::ClientBlocks;
use penstock_core::{
    AttemptTarget, Dialect, FinishReason, InferenceRequest, OutputBuffer, StreamProgress, StreamTranslation,
    ThinkingDisplay, TokenUsage, UpstreamError, UpstreamErrorKind, UsageSource,
};
use penstock_http_wire::{sse, usage};
use penstock_json_scan::json;

/// Types of events that are forwarded one by one, so that each must be a complete JSON object.
const FORWARDED_EVENTS: [&str; 4] =
    ["content_block_start", "content_block_delta", "content_block_stop", "ping"];

/// State for forwarding one streamed answer to a client of the same dialect.
pub(super) struct StreamPassthrough {
    /// True if the shadow translator writes to the client from now on: another provider continues the answer, or the
    /// answer was cut.
    is_rescued: bool,
    /// Converter of a body that is no event stream.
    body_converter: BodyToSseConverter,
    /// Shadow translator (see the documentation of the module).
    observer: StreamTranslator,
    sse_decoder: sse::SseDecoder,
    decoder: MessagesDecoder,
    model: String,
    /// Stop sequences of the client.
    stop_sequences: Vec<String>,
    /// Unique part of the answer's id.
    id: String,
    /// Estimated usage for the `message_start` event, if the provider has reported none.
    initial_usage: TokenUsage,
    thinking: ThinkingDisplay,
    /// Thinking blocks that the client did not request.
    hidden_blocks: HiddenBlocks,
    /// Event `message_start`, held until the first content.
    held_message_start: Option<Bytes>,
    /// Held events that open, sign and close blocks.
    held_events: OutputBuffer,
    /// Tool inputs from the start events of their blocks, by block index.
    early_inputs: Vec<(usize, Bytes)>,
    /// Ids of the tool calls.
    call_ids: ToolCallIds,
    /// Index of an open thinking block without a signature.
    unsigned_block: Option<usize>,
    /// Data of the `message_delta` that ends the message.
    message_delta: Option<Bytes>,
    /// Blocks that the client receives.
    client_blocks: ClientBlocks,
}

impl StreamPassthrough {
    /// Creates the state at the start of a stream from `target`.
    pub(super) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        let manner = WriterOptions::from_request(ask, target);
        Self {
            is_rescued: false,
            body_converter: BodyToSseConverter::default(),
            initial_usage: manner.message_start_usage(None),
            observer: StreamTranslator::new(ask, target, Box::new(MessagesStreamWriter::new(manner))),
            sse_decoder: sse::SseDecoder::new(crate::decode::MAX_EVENT_BYTES),
            decoder: MessagesDecoder::new(target.answer_id),
            model: target.answer_model.to_owned(),
            stop_sequences: ask.stop.clone(),
            id: target.answer_id.to_owned(),
            thinking: ask.thinking,
            hidden_blocks: HiddenBlocks::default(),
            held_message_start: None,
            held_events: OutputBuffer::default(),
            early_inputs: Vec::new(),
            call_ids: ToolCallIds::default(),
            unsigned_block: None,
            message_delta: None,
            client_blocks: ClientBlocks::default(),
        }
    }

    /// Processes the events of a whole message that the provider sent instead of a stream.
    fn process_message(&mut self, object: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        let object = without_lone_surrogates(object);
        // An error object and a truncated message have the same error as for other clients.
        let mut decoded = Vec::new();
        decode::decode_closed_object(Dialect::Messages, object.clone(), &self.id, &mut decoded)
            .or_else(|error| self.reject_event(error).map(|()| None))?;
        let object = json::replace_line_breaks(&object).map_or(object, Bytes::from);
        for data in message_events(&object) {
            if self.observer.progress() == StreamProgress::Ended {
                return Ok(());
            }
            self.process_unordered(&data, &EventMembers::parse(&data), out)?;
        }
        Ok(())
    }

    fn process_event(&mut self, event: &sse::SseEvent, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if let Some(measured) = event.comment.as_deref().and_then(usage::parse_energy_comment) {
            let tell = |events: &mut Vec<AnswerEvent>| {
                events.push(AnswerEvent::Energy(measured));
                Ok(())
            };
            self.observer.push_events_from(tell, &mut OutputBuffer::default())?;
        }
        let seen = EventMembers::parse(&event.data);
        if let Some(error) = decode::event_error(event, seen.has_known_type()) {
            return self.reject_event(error);
        }
        if json::trim(&event.data).is_empty() {
            return Ok(());
        }
        let kind = &*seen.event_type;
        let passes = FORWARDED_EVENTS.contains(&kind);
        let without_lines = json::replace_line_breaks(&event.data);
        // An incomplete object or invalid UTF-8 would break the client's parser.
        if ((passes || without_lines.is_some()) && !seen.is_complete)
            || std::str::from_utf8(&event.data).is_err()
        {
            return self.reject_event(UpstreamError::new(UpstreamErrorKind::Malformed));
        }
        if let Some(data) = without_lines {
            let data = Bytes::from(data);
            return self.process_event(&sse::SseEvent { data, ..sse::SseEvent::default() }, out);
        }
        let Some(parts) = split_message_start(&event.data, &seen) else {
            return self.process_unordered(&event.data, &seen, out);
        };
        parts.iter().try_for_each(|data| self.process_unordered(data, &EventMembers::parse(data), out))
    }

    /// Ends the stream with the error of an event, unless the error is ignored at this point of the stream.
    fn reject_event(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        self.observer.push_events_from(|_| Err(error), &mut OutputBuffer::default()).map(drop)
    }

    /// Processes an event of the provider, given its members.
    fn process_unordered(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), UpstreamError> {
        let parts = match self.decoder.sequence_blocks(data, members) {
            Ok(Some(parts)) => parts,
            Ok(None) => return self.process_members(data, members, out),
            Err(error) => return self.reject_event(error),
        };
        parts.iter().try_for_each(|data| self.process_members(data, &EventMembers::parse(data), out))
    }

    /// Processes an event whose blocks are in order.
    fn process_members(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), UpstreamError> {
        let was_ended = self.observer.progress() == StreamProgress::Ended;
        let mut shadow = OutputBuffer::default();
        let decode = |events: &mut Vec<AnswerEvent>| self.decoder.decode_members(data, members, events);
        if !self.observer.push_events_from(decode, &mut shadow)? {
            return Ok(());
        }
        if !was_ended && self.observer.is_cut_at_limit() {
            return self.end_answer_at_limit(shadow, out);
        }
        if self.observer.progress() > StreamProgress::Pending {
            // The start event is sent with the first content token, even if that token itself is hidden from the
            // client.
            out.0.extend(self.held_message_start.take());
        }
        self.forward_event(data, members, out)
    }

    /// Ends an answer that exceeds its limit. The shadow translator has cut the event: `shadow` is its output for the
    /// event, and it writes the end of the answer too.
    fn end_answer_at_limit(
        &mut self,
        shadow: OutputBuffer,
        out: &mut OutputBuffer,
    ) -> Result<(), UpstreamError> {
        if self.client_blocks.differ_from_shadow() {
            // The shadow translator cannot write the end of the answer, because its blocks have other indices.
            return Err(UpstreamError::invalid_model_output());
        }
        self.is_rescued = true;
        (self.held_message_start, self.held_events) = (None, OutputBuffer::default());
        out.0.extend(shadow.0);
        Ok(())
    }

    /// Forwards an event of the provider to the client, or holds it back.
    fn forward_event(
        &mut self,
        data: &Bytes,
        members: &EventMembers<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), UpstreamError> {
        let kind = &*members.event_type;
        match kind {
            "message_start" => self.held_message_start = Some(self.make_message_start(data, members.message)),
            "message_delta" => {
                let reason = members.delta.and_then(|delta| json_cursor::member_value(delta, "stop_reason"));
                if reason.is_some() || self.message_delta.is_none() {
                    self.message_delta = Some(data.clone());
                }
            }
            "content_block_start" | "content_block_delta" | "content_block_stop"
                if self.observer.progress() == StreamProgress::Ended => {}
            "content_block_start" => self.forward_block_start(data, members, out),
            "content_block_delta" | "content_block_stop" if self.hidden_blocks.contains(members.index) => {}
            "content_block_stop" => self.forward_block_stop(data, members.index.unwrap_or_default(), out),
            "content_block_delta" => self.forward_block_delta(data, members, out),
            "ping" if self.observer.progress() > StreamProgress::Pending => {
                out.push(sse::encode_named_event(kind, data))
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the `message_start` event with the model name that the client used.
    fn make_message_start(&self, data: &Bytes, message: Option<&[u8]>) -> Bytes {
        let known = self.observer.usage().filter(|usage| usage.input > 0).unwrap_or(self.initial_usage);
        let renamed = repair::repair_message_start(data, message, (&self.model, &self.id), &known);
        let data = [br#"{"type":"message_start","message":"#, &renamed[..], b"}"].concat();
        sse::encode_named_event("message_start", &data)
    }

    fn forward_block_start(&mut self, data: &Bytes, members: &EventMembers<'_>, out: &mut OutputBuffer) {
        let block = members.content_block.unwrap_or_default();
        if self.thinking == ThinkingDisplay::Off && is_thinking_block(block) {
            // The block is not written, because the shadow translator does not write it either.
            return self.hidden_blocks.hide(members.index.unwrap_or_default());
        }
        let kind =
            json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
        self.client_blocks.record_start();
        let start = repair::repair_block_start(data, members, self.thinking, (&mut self.call_ids, &self.id));
        self.early_inputs.extend(members.index.zip(start.early_input));
        let sealed = json_cursor::member_value(block, "signature")
            .and_then(json_cursor::string_body)
            .is_some_and(|seal| !seal.is_empty());
        if !sealed && kind == "thinking" {
            self.unsigned_block = members.index;
        }
        self.held_events.push(sse::encode_named_event(
            "content_block_start",
            &self.hidden_blocks.with_client_index(&start.data, members.index),
        ));
        if let Some((name, words)) = start.early_text {
            let index = self.hidden_blocks.client_index(members.index.unwrap_or_default());
            self.held_events.push(sse::encode_named_event(
                "content_block_delta",
                &repair::make_text_delta(index, name, &words),
            ));
        }
        if kind == "tool_use" || repair::early_text(block).is_some() {
            // The start event has content itself, so the shadow translator has opened the block.
            self.flush_held(out);
        }
    }

    fn forward_block_delta(&mut self, data: &Bytes, members: &EventMembers<'_>, out: &mut OutputBuffer) {
        // The shadow translator opens no block for an empty delta, so it is not forwarded.
        let delta = members.delta.and_then(DeltaMembers::parse).filter(|delta| !delta.is_empty());
        let Some(delta) = delta else { return };
        // The delta replaces the input of its block's start event.
        self.early_inputs.retain(|(index, _)| Some(*index) != members.index);
        let is_signature = delta.kind == DeltaKind::Signature;
        if is_signature {
            self.unsigned_block = None;
            // The signature is held until the next content, because the shadow translator writes it only then.
            self.flush_held(out);
        }
        let omitted = self.thinking == ThinkingDisplay::Omitted && delta.kind == DeltaKind::Thinking;
        if !omitted {
            self.held_events.push(sse::encode_named_event(
                "content_block_delta",
                &self.hidden_blocks.with_client_index(data, members.index),
            ));
        }
        if !is_signature {
            self.flush_held(out);
        }
    }

    fn forward_block_stop(&mut self, data: &Bytes, index: usize, out: &mut OutputBuffer) {
        if let Some(at) = self.early_inputs.iter().position(|(early, _)| *early == index) {
            let (_, input) = self.early_inputs.swap_remove(at);
            let delta = repair::make_input_delta(self.hidden_blocks.client_index(index), &input);
            self.held_events.push(sse::encode_named_event("content_block_delta", &delta));
            // The shadow translator has written the input too, so its block is open.
            self.flush_held(out);
        }
        if self.unsigned_block.take_if(|unsealed| *unsealed == index).is_some() {
            let seal = repair::make_signature_delta(self.hidden_blocks.client_index(index), &self.id);
            self.held_events.push(sse::encode_named_event("content_block_delta", &seal));
        }
        self.held_events.push(sse::encode_named_event(
            "content_block_stop",
            &self.hidden_blocks.with_client_index(data, Some(index)),
        ));
    }

    /// Sends the held events, after the shadow translator has written the same content.
    fn flush_held(&mut self, out: &mut OutputBuffer) {
        if self.observer.progress() > StreamProgress::Pending {
            out.0.append(&mut self.held_events.0);
            self.client_blocks.record_flush(self.observer.started_blocks());
        }
    }

    /// Writes the last events: the provider's `message_delta` with usage and Penstock objects, and `message_stop`.
    fn write_final_events(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        out.0.extend(self.held_message_start.take());
        out.0.append(&mut self.held_events.0);
        let mut end = Vec::with_capacity(512 + objects.len());
        if self.client_blocks.is_empty() {
            messages::write_empty_block(&mut end);
        }
        let last = self.message_delta.take().unwrap_or_default();
        end.extend_from_slice(b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":");
        let finish = self.observer.finish_reason().unwrap_or(FinishReason::Stop);
        repair::write_message_delta(
            json_cursor::member_value(&last, "delta"),
            finish,
            &self.stop_sequences,
            &mut end,
        );
        end.extend_from_slice(br#","usage":"#);
        let own = json_cursor::member_value(&last, "usage")
            .filter(|own| usage.source == UsageSource::Provider && has_all_counts(own))
            .filter(|own| !repair::has_implausible_usage_details(own, usage));
        match own {
            Some(own) => end.extend_from_slice(own),
            None => messages::write_usage(usage, &mut end),
        }
        if !objects.is_empty() {
            end.push(b',');
            end.extend_from_slice(objects);
        }
        end.extend_from_slice(b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        out.push(Bytes::from(end));
    }
}

/// Returns true if a usage object has all counts that clients read from the `message_delta` event.
fn has_all_counts(usage: &[u8]) -> bool {
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .iter()
        .all(|name| json_cursor::member_value(usage, name).and_then(json_cursor::parse_integer).is_some())
}
