//! Passthrough of a native stream.
//!
//! Events are forwarded unchanged and named by their `type`, because some clients
//! read the name and some the type. Thinking that the client did not request is
//! removed. A shadow translator reads the same stream: it tracks the progress,
//! counts the output, and writes the same answer to a discarded buffer, so that its
//! state is right if another provider must continue. For this reason, events that
//! open and close blocks are held until the next event arrives: the client and the
//! shadow always have the same block open.

use super::hidden::{Hidden, is_thought, is_words, says_nothing};
use super::mend;
use crate::decode::BodyFormat;
use crate::decode::messages::{EventMembers, MessagesDecoder};
use crate::event::AnswerEvent;
use crate::json_cursor;
use crate::response_constraints::ToolCallIds;
use crate::stream_translator::StreamTranslator;
use crate::write::messages::{self, MessagesStreamWriter, WriterOptions};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, Dialect, FinishReason, InferenceRequest, MeasuredEnergy, OutputBuffer,
    RescueMode, StreamProgress, StreamTranslation, ThinkingDisplay, TokenUsage, UpstreamError,
    UpstreamErrorKind, UsageSource,
};
use penstock_http_wire::{error, json, sse, usage};

/// Types of events that are forwarded as they are.
const PASSING: [&str; 4] = ["content_block_start", "content_block_delta", "content_block_stop", "ping"];
/// Native answer in progress.
pub(super) struct Passing {
    /// True if the shadow continues with another provider.
    rescued: bool,
    form: BodyFormat,
    shadow: StreamTranslator,
    sse: sse::SseDecoder,
    decoder: MessagesDecoder,
    model: String,
    /// Stop sequences of the client.
    stop: Vec<String>,
    /// Unique part of the answer's id.
    id: String,
    /// Usage that is estimated at the start of the answer.
    guess: TokenUsage,
    thinking: ThinkingDisplay,
    /// Thinking blocks that the client did not request.
    hidden: Hidden,
    /// The `message_start` event, held until the first content.
    opening: Option<Bytes>,
    /// Held events that open and close blocks.
    held: OutputBuffer,
    /// Tool inputs from the start events of their blocks, by block index.
    early: Vec<(usize, Bytes)>,
    /// Ids of the tool calls.
    ids: ToolCallIds,
    /// Index of an open thinking block without a signature.
    unsealed: Option<usize>,
    /// Data of the `message_delta` that ends the message.
    last: Option<Bytes>,
    /// Number of blocks that the client receives.
    blocks: usize,
    /// True if the last started block is a text.
    after_text: bool,
    /// True if the last started block has no content so far.
    silent: bool,
    /// True if a forwarded block cannot be written by the shadow.
    foreign: bool,
}

impl Passing {
    pub(super) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        let manner = WriterOptions::from_request(ask, target);
        Self {
            rescued: false,
            form: BodyFormat::Unknown,
            guess: manner.start_usage(None),
            shadow: StreamTranslator::new(ask, target, Box::new(MessagesStreamWriter::new(manner))),
            sse: sse::SseDecoder::new(crate::decode::MAX_EVENT),
            decoder: MessagesDecoder::new(),
            model: target.answer_model.to_owned(),
            stop: ask.stop.clone(),
            id: target.id.to_owned(),
            thinking: ask.thinking,
            hidden: Hidden::default(),
            opening: None,
            held: OutputBuffer::default(),
            early: Vec::new(),
            ids: ToolCallIds::default(),
            unsealed: None,
            last: None,
            blocks: 0,
            after_text: false,
            silent: false,
            foreign: false,
        }
    }

    /// Returns true if the shadow writes to the client, because no event can be forwarded unchanged.
    fn is_spoken(&self) -> bool {
        self.rescued || self.form == BodyFormat::JsonObject
    }

    fn take(&mut self, event: &sse::SseEvent, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if let Some(measured) = event.comment.as_deref().and_then(usage::parse_energy_comment) {
            let tell = |events: &mut Vec<AnswerEvent>| {
                events.push(AnswerEvent::Energy(measured));
                Ok(())
            };
            self.shadow.push_decoded(tell, &mut OutputBuffer::default())?;
        }
        if json::trim(&event.data).is_empty() {
            return Ok(());
        }
        let seen = EventMembers::parse(&event.data);
        let kind = &*seen.event_type;
        let passes = PASSING.contains(&kind);
        let lines = memchr::memchr(b'\n', &event.data).is_some();
        // An incomplete object or invalid UTF-8 would break the client's parser.
        let over = self.shadow.progress() == StreamProgress::Ended;
        if ((passes || lines) && !seen.is_complete) || std::str::from_utf8(&event.data).is_err() {
            return if over { Ok(()) } else { Err(UpstreamError::new(UpstreamErrorKind::Malformed)) };
        }
        if lines {
            // A line break between JSON tokens is white space.
            let data = event.data.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect();
            return self.take(&sse::SseEvent { data, ..sse::SseEvent::default() }, out);
        }
        let data = &event.data;
        self.shadow.push_decoded(
            |events| self.decoder.decode_members(data, &seen, events),
            &mut OutputBuffer::default(),
        )?;
        if self.shadow.progress() > StreamProgress::Pending {
            // Sent with the first content token, even if that token is hidden from the client.
            out.0.extend(self.opening.take());
        }
        self.pass(data, &seen, out)
    }

    /// Forwards an event to the client.
    fn pass(
        &mut self,
        data: &Bytes,
        seen: &EventMembers<'_>,
        out: &mut OutputBuffer,
    ) -> Result<(), UpstreamError> {
        let kind = &*seen.event_type;
        match kind {
            "message_start" => self.opening = Some(self.start(data, seen.message)?),
            "message_delta" => {
                let reason = seen.delta.and_then(|delta| json_cursor::member_value(delta, "stop_reason"));
                if reason.is_some() || self.last.is_none() {
                    self.last = Some(data.clone());
                }
            }
            "content_block_start" | "content_block_delta" | "content_block_stop"
                if self.shadow.progress() == StreamProgress::Ended => {}
            "content_block_start" => self.block_start(data, seen, out),
            "content_block_delta" | "content_block_stop" if self.hidden.has(seen.index) => {}
            "content_block_stop" => self.block_stop(data, seen.index.unwrap_or_default(), out),
            // An empty delta: the shadow opens no block for it.
            "content_block_delta" if says_nothing(seen.delta.unwrap_or_default()) => {}
            "content_block_delta" => {
                self.silent = false;
                self.note_delta(seen);
                let omitted = self.thinking == ThinkingDisplay::Omitted && seen.delta.is_some_and(is_words);
                if !omitted {
                    self.held.push(sse::named_event(kind, &self.hidden.numbered(data, seen.index)));
                }
                self.let_go(out);
            }
            "ping" if self.shadow.progress() > StreamProgress::Pending => {
                out.push(sse::named_event(kind, data))
            }
            _ => {}
        }
        Ok(())
    }

    /// Records a started block, to detect blocks that the shadow cannot write.
    fn note_block(&mut self, kind: &str, speaks: bool) {
        // The shadow does not count an empty block, so the next index would differ.
        self.foreign |= self.silent;
        self.silent = kind != "tool_use" && !speaks;
        // The shadow merges two consecutive texts into one block.
        self.foreign |= !matches!(kind, "text" | "thinking" | "tool_use");
        self.foreign |= kind == "text" && self.after_text;
        self.after_text = kind == "text";
        self.blocks += 1;
    }

    /// Returns the `message_start` event with the client's name for the model.
    fn start(&self, data: &Bytes, message: Option<&[u8]>) -> Result<Bytes, UpstreamError> {
        let known = self.shadow.usage().filter(|usage| usage.input > 0).unwrap_or(self.guess);
        let renamed = message.and_then(|message| mend::opening(data, message, &self.model, &known));
        let renamed = renamed.ok_or(UpstreamError::new(UpstreamErrorKind::Malformed))?;
        let data = [br#"{"type":"message_start","message":"#, &renamed[..], b"}"].concat();
        Ok(sse::named_event("message_start", &data))
    }

    fn block_start(&mut self, data: &Bytes, seen: &EventMembers<'_>, out: &mut OutputBuffer) {
        let block = seen.content_block.unwrap_or_default();
        if self.thinking == ThinkingDisplay::Off && is_thought(block) {
            // The shadow also writes neither the block nor a trace of it.
            return self.hidden.leave_out(seen.index.unwrap_or_default());
        }
        let kind =
            json_cursor::member_value(block, "type").and_then(json_cursor::parse_string).unwrap_or_default();
        self.note_block(&kind, mend::early_words(block).is_some());
        let start = mend::block_start(data, seen, self.thinking, (&mut self.ids, &self.id));
        self.early.extend(seen.index.zip(start.input));
        let sealed = json_cursor::member_value(block, "signature")
            .and_then(json_cursor::string_body)
            .is_some_and(|seal| !seal.is_empty());
        if !sealed && kind == "thinking" {
            self.unsealed = seen.index;
        }
        self.held
            .push(sse::named_event("content_block_start", &self.hidden.numbered(&start.data, seen.index)));
        if let Some((name, words)) = start.words {
            let index = self.hidden.number(seen.index.unwrap_or_default());
            self.held.push(sse::named_event("content_block_delta", &mend::words_delta(index, name, &words)));
        }
        if !self.silent {
            // The start is content by itself: the shadow has opened its block.
            self.let_go(out);
        }
    }

    /// Records a delta: deltas override the input and the missing signature of the start event.
    fn note_delta(&mut self, seen: &EventMembers<'_>) {
        if !self.early.is_empty() {
            self.early.retain(|(index, _)| Some(*index) != seen.index);
        }
        if self.unsealed.is_some()
            && seen
                .delta
                .and_then(|delta| json_cursor::member_value(delta, "type"))
                .is_some_and(|kind| json::is_string(kind, "signature_delta"))
        {
            self.unsealed = None;
        }
    }

    fn block_stop(&mut self, data: &Bytes, index: usize, out: &mut OutputBuffer) {
        if let Some(at) = self.early.iter().position(|(early, _)| *early == index) {
            let (_, input) = self.early.swap_remove(at);
            let delta = mend::input_delta(self.hidden.number(index), &input);
            self.held.push(sse::named_event("content_block_delta", &delta));
            // The shadow has written the input too.
            self.let_go(out);
        }
        if self.unsealed.take_if(|unsealed| *unsealed == index).is_some() {
            let seal = mend::seal_delta(self.hidden.number(index), &self.id);
            self.held.push(sse::named_event("content_block_delta", &seal));
        }
        self.held.push(sse::named_event("content_block_stop", &self.hidden.numbered(data, Some(index))));
    }

    fn let_go(&mut self, out: &mut OutputBuffer) {
        if self.shadow.progress() > StreamProgress::Pending {
            out.0.append(&mut self.held.0);
        }
    }

    /// Writes the last events: the provider's `message_delta` with usage and Penstock objects, and `message_stop`.
    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        out.0.extend(self.opening.take());
        out.0.append(&mut self.held.0);
        let mut end = Vec::with_capacity(512 + objects.len());
        if self.blocks == 0 {
            messages::write_empty_block(&mut end);
        }
        let last = self.last.take().unwrap_or_default();
        end.extend_from_slice(b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":");
        let finish = self.shadow.finish_reason().unwrap_or(FinishReason::Stop);
        mend::end(json_cursor::member_value(&last, "delta"), finish, &self.stop, &mut end);
        end.extend_from_slice(br#","usage":"#);
        let own = json_cursor::member_value(&last, "usage")
            .filter(|own| usage.source == UsageSource::Provider && counts(own));
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

/// Returns true if a usage object has all numbers that clients read from the last event.
fn counts(usage: &[u8]) -> bool {
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .iter()
        .all(|name| json_cursor::member_value(usage, name).and_then(json_cursor::parse_integer).is_some())
}

impl StreamTranslation for Passing {
    fn push(&mut self, bytes: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.form == BodyFormat::Unknown {
            self.form = BodyFormat::of(&bytes);
        }
        if self.is_spoken() {
            return self.shadow.push(bytes, out);
        }
        self.sse.push(bytes);
        while let Some(event) = self.sse.next() {
            if self.shadow.progress() == StreamProgress::Ended {
                return Ok(());
            }
            let event =
                event.map_err(|sse::EventTooLong| UpstreamError::new(UpstreamErrorKind::Malformed))?;
            self.take(&event, out)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.is_spoken() {
            return self.shadow.end(out);
        }
        if let Some(event) = self.sse.end()
            && self.shadow.progress() < StreamProgress::Ended
        {
            // An incomplete event means that the stream was truncated, not that it is malformed.
            self.take(&event, out).map_err(|fault| match fault.kind {
                UpstreamErrorKind::Malformed => UpstreamError::new(UpstreamErrorKind::Truncated),
                _ => fault,
            })?;
        }
        self.shadow.end(&mut OutputBuffer::default())
    }

    fn progress(&self) -> StreamProgress {
        self.shadow.progress()
    }

    fn usage(&self) -> Option<TokenUsage> {
        self.shadow.usage()
    }

    fn output_bytes(&self) -> usize {
        self.shadow.output_bytes()
    }

    fn generated_bytes(&self) -> usize {
        self.shadow.generated_bytes()
    }

    fn estimated_usage(&self) -> TokenUsage {
        self.shadow.estimated_usage()
    }

    fn attempt_usage(&self) -> TokenUsage {
        self.shadow.attempt_usage()
    }

    fn kept(&self) -> usize {
        let held: usize = self.held.0.iter().map(Bytes::len).sum();
        let early: usize = self.early.iter().map(|(_, input)| input.len()).sum();
        let ends = [&self.opening, &self.last].into_iter().flatten().map(Bytes::len).sum::<usize>();
        held + early + ends + self.sse.kept() + self.decoder.inputs() + self.shadow.kept()
    }

    fn measured_energy(&self) -> Option<MeasuredEnergy> {
        self.shadow.measured_energy()
    }

    fn has_invalid_output(&self) -> bool {
        self.shadow.has_invalid_output()
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        self.shadow.finish_reason()
    }

    fn delivered_text(&mut self) -> Option<String> {
        if self.foreign && !self.rescued { None } else { self.shadow.delivered_text() }
    }

    fn start_rescue(&mut self, target: &AttemptTarget<'_>, how: RescueMode) -> bool {
        if self.foreign && !self.rescued {
            return false;
        }
        let taken = self.shadow.start_rescue(target, how);
        if taken {
            self.rescued = true;
            // Held events open or close blocks that the shadow opens or closes itself.
            (self.opening, self.held) = (None, OutputBuffer::default());
        }
        taken
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        if self.is_spoken() {
            return self.shadow.write_end(usage, objects, out);
        }
        if self.shadow.has_invalid_output() {
            out.0.extend(self.opening.take());
            out.0.append(&mut self.held.0);
            out.push(messages::invalid_output_event(&self.id, objects));
        } else {
            self.write_end(usage, objects, out);
        }
        self.shadow.write_end(usage, &[], &mut OutputBuffer::default());
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, out: &mut OutputBuffer) {
        if self.is_spoken() {
            return self.shadow.write_error(refusal, request_id, out);
        }
        let envelope = error::error_envelope(Dialect::Messages, refusal, request_id);
        out.push(sse::named_event("error", &envelope));
        self.shadow.write_error(refusal, request_id, &mut OutputBuffer::default());
    }
}
