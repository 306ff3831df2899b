//! Parser of stream chunks and of buffered bodies. One parser reads both, because some engines mix the two formats.

mod choice_content;
mod error_members;
mod members;
mod text_emitter;
mod whole_message;

use super::finish_reason;
use super::tool_calls::{FragmentContext, ToolCallFragment, ToolCallTracker};
use crate::classify;
use crate::decode::text_channel::{SplitSurrogate, TextChannel};
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor::{self, JsonCursor};
use bytes::Bytes;
use choice_content::{ContentRecognition, EmittedChannels};
use members::{ChoiceMembers, ChunkMembers, MessageMembers};
use penstock_core::{FinishReason, ReasoningName, UpstreamError, UpstreamErrorKind};
use penstock_http_wire::usage;
use std::ops::Range;
use text_emitter::TextEmitter;

/// Maximum number of choices, the limit of a text completion with many prompts.
const MAX_CHOICES: u64 = 1024;

/// Range of the text or arguments of a chunk that contains nothing else, without the quotes.
pub(super) struct TextRange(pub(super) Range<usize>);

/// Parser of the successive chunks of one answer.
pub(super) struct ChunkReader {
    seed: String,
    is_buffered: bool,
    choices: Vec<ChoiceDecoder>,
    last_reasoning_name: Option<ReasoningName>,
    /// True if the chunk with the last finish reason had output too.
    finish_with_output: bool,
    /// True if the chunk has usage.
    has_usage: bool,
}

#[derive(Default)]
struct ChoiceDecoder {
    tool_calls: ToolCallTracker,
    split_surrogate: SplitSurrogate,
    is_finished: bool,
    /// True if the last chunk of the choice has an empty finish reason and no output.
    has_empty_finish: bool,
    /// Finish reason of an answer that was cut, if no output has followed it.
    cut: Option<FinishReason>,
    content: ContentRecognition,
    emitted: EmittedChannels,
    /// True if the choice has had output in a `delta`. A later `message` without a `delta` then repeats the answer.
    has_delta_output: bool,
    /// True if the choice has had reasoning in a member other than `reasoning_details`. The member `reasoning_details`
    /// is then not read.
    has_named_reasoning: bool,
}

fn malformed_error() -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Malformed)
}

impl ChunkReader {
    /// Creates a parser of stream chunks, or of one buffered body.
    pub(super) fn new(seed: &str, is_buffered: bool) -> Self {
        Self {
            seed: seed.to_owned(),
            is_buffered,
            choices: Vec::new(),
            last_reasoning_name: None,
            finish_with_output: false,
            has_usage: false,
        }
    }

    /// Appends the events of a chunk. Returns the range of its text or arguments if it contains nothing else.
    pub(super) fn read_chunk(
        &mut self,
        chunk: &Bytes,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<Option<TextRange>, UpstreamError> {
        std::str::from_utf8(chunk).map_err(|_| malformed_error())?;
        let mut cursor = JsonCursor::new(chunk);
        let ChunkMembers { choices, mut usage, measured_energy: measured, is_failed } =
            ChunkMembers::parse(&mut cursor);
        if is_failed {
            return Err(classify::classify_in_band_error(chunk));
        }
        if !cursor.is_complete() {
            return Err(malformed_error());
        }
        let (mut only, count, before) = (None, choices.len(), events.len());
        for (position, parts) in choices.iter().enumerate() {
            let parts = parts.as_ref().ok_or_else(malformed_error)?;
            if let Some(error) = parts.error {
                return Err(classify::classify_in_band_error(&[b"{\"error\":", error, b"}"].concat()));
            }
            usage = usage.or_else(|| parts.usage.and_then(usage::parse_usage));
            self.last_reasoning_name =
                parts.message.and_then(|message| message.reasoning_name).or(self.last_reasoning_name);
            self.has_usage = usage.is_some();
            only = self.read_choice(chunk, parts, position as u64, events)?;
        }
        let mut added = events.iter().skip(before);
        let has_output = usage.is_some() && added.any(|event| event.generated_bytes() > 0);
        // The usage is the last event of the chunk: in a chunk after `[DONE]`, no event that follows the usage is read.
        events.extend(measured.map(AnswerEvent::Energy));
        events.extend(usage.map(if has_output { AnswerEvent::InterimUsage } else { AnswerEvent::Usage }));
        let alone = count == 1 && usage.is_none() && measured.is_none();
        Ok(only.filter(|_| alone))
    }

    /// Returns the name of the reasoning member in the last chunk that had one.
    pub(super) const fn reasoning_name(&self) -> Option<ReasoningName> {
        self.last_reasoning_name
    }

    /// Returns true if the last finish reason came with output.
    pub(super) const fn has_finish_with_output(&self) -> bool {
        self.finish_with_output
    }

    /// Returns true if a choice has no finish reason, and each such choice had an empty one in its last chunk, without
    /// output.
    pub(super) fn has_empty_finish(&self) -> bool {
        let mut open = self.choices.iter().filter(|choice| !choice.is_finished).peekable();
        open.peek().is_some() && open.all(|choice| choice.has_empty_finish)
    }

    /// Checks that no choice has a call without a name after its finish reason. Called at the end of the answer.
    ///
    /// # Errors
    /// Returns `ModelOutput` otherwise, because the arguments of the call are lost.
    pub(super) fn check_late_calls(&self) -> Result<(), UpstreamError> {
        let mut finished = self.choices.iter().filter(|choice| choice.is_finished);
        finished.try_for_each(|choice| choice.tool_calls.check_names_present())
    }

    /// Returns the seed of generated tool call ids.
    pub(super) fn id_seed(&self) -> &str {
        &self.seed
    }

    /// Returns the number of buffered bytes of tool call arguments.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.choices.iter().map(|choice| choice.tool_calls.stored_bytes()).sum()
    }

    /// Records arguments from a chunk on the fast path.
    pub(super) fn record_fast_path_arguments(&mut self, choice: u32, tool: u32, fragment: &EscapedText) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.tool_calls.record_fast_path_arguments(tool, fragment);
        }
    }

    fn read_choice(
        &mut self,
        chunk: &Bytes,
        parts: &ChoiceMembers<'_>,
        position: u64,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<Option<TextRange>, UpstreamError> {
        let number =
            parts.index.map_or(Some(position), json_cursor::parse_index).ok_or_else(malformed_error)?;
        if number >= MAX_CHOICES {
            return Err(malformed_error());
        }
        let at = usize::try_from(number).map_err(|_| malformed_error())?;
        let number = u32::try_from(number).map_err(|_| malformed_error())?;
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, ChoiceDecoder::default);
        }
        let choice = self.choices.get_mut(at).ok_or_else(malformed_error)?;
        // A buffered answer has each choice once. A repeated index means that the provider sent a choice that was not
        // requested, or a false index.
        if choice.is_finished && self.is_buffered {
            return Err(malformed_error());
        }
        // A buffered answer must have a message, even an empty one.
        if self.is_buffered && parts.message.is_none() && parts.text.is_none() {
            return Err(malformed_error());
        }
        let (message, whole) = choice.split_whole(parts, self.is_buffered);
        let message = MessageMembers { content: message.content.or(parts.text), ..message };
        choice.has_named_reasoning |= message.reasoning.is_some();
        let (message, has_whole_calls) = choice.complete_from_whole(message, whole);
        let is_buffered = self.is_buffered || has_whole_calls;
        let seen = ChunkContext { chunk, choice: number, seed: &self.seed, is_buffered };
        let before = events.len();
        let content =
            choice.emit_text(&message, finish_reason::optional_object(parts.logprobs)?, seen, events)?;
        let called = choice.read_tool_calls(&message, seen, events)?;
        let given = events.get(before..).unwrap_or_default();
        let has_output = !given.is_empty();
        choice.has_delta_output |= has_output && parts.has_delta;
        if has_output {
            choice.cut = None;
        }
        choice.emitted.record_events(given);
        choice.content = choice.content.after_chunk(content, &message, given, !choice.tool_calls.is_empty());
        if let Some(reason) =
            finish_reason::choice_finish_reason(parts.finish_reason, self.is_buffered, self.has_usage)?
        {
            choice.emit_finish(reason, parts.stop_sequence, seen, events)?;
            self.finish_with_output = has_output;
        }
        choice.has_empty_finish = !has_output && parts.finish_reason == Some(b"\"\"");
        // The fast path is not possible while a surrogate is pending, because the next text must be joined with it.
        let clear = choice.split_surrogate.is_empty();
        let text = message.content.filter(|_| message.reasoning.is_none()).or(message.reasoning);
        let text = called.map_or(text, |arguments| arguments.filter(|_| text.is_none()));
        let is_plain = clear && parts.whole_message.is_none();
        let only = text.and_then(string_body).filter(|text| is_plain && !text.is_empty());
        Ok(only.and_then(|text| text_span(chunk, text)))
    }
}

/// Values that the events of a choice are built from.
#[derive(Clone, Copy)]
struct ChunkContext<'a> {
    chunk: &'a Bytes,
    choice: u32,
    seed: &'a str,
    is_buffered: bool,
}

impl ChoiceDecoder {
    /// Emits the reasoning, the content and the refusal. If the content is a list of parts, returns what was recognized
    /// in the parts; otherwise returns [`ContentRecognition::None`].
    fn emit_text(
        &mut self,
        message: &MessageMembers<'_>,
        logprobs: Option<&[u8]>,
        context: ChunkContext<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<ContentRecognition, UpstreamError> {
        let mut speaker = TextEmitter {
            chunk: context.chunk,
            choice: context.choice,
            split_surrogate: &mut self.split_surrogate,
            events,
        };
        speaker.emit_reasoning(message.reasoning)?;
        // A token may have a log probability but no text, for example a part of a character.
        let silent = logprobs.is_some().then_some(&b"\"\""[..]);
        let parts = speaker.emit_content(message.content.or(silent), logprobs)?;
        speaker.emit_string(TextChannel::Refusal, message.refusal, None)?;
        Ok(parts)
    }

    /// Reads the tool calls; returns `None` if there are none. The inner value has the arguments of a single fragment
    /// without a name, which the fast path can assign to its call.
    fn read_tool_calls<'a>(
        &mut self,
        message: &MessageMembers<'a>,
        chunk_context: ChunkContext<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<Option<Option<&'a [u8]>>, UpstreamError> {
        let mut context = FragmentContext {
            source: chunk_context.chunk,
            choice: chunk_context.choice,
            seed: chunk_context.seed,
            may_hold: !self.is_finished,
            split_surrogate: &mut self.split_surrogate,
            events,
        };
        let calls = message.tool_calls.unwrap_or(b"[]");
        if !json_cursor::is_array(calls) {
            return Err(malformed_error());
        }
        let (mut called, mut named) = (None, Vec::new());
        for element in json_cursor::elements(calls) {
            let mut fragment = ToolCallFragment::parse(element).ok_or_else(malformed_error)?;
            // In a chunk, arguments are a string with a fragment of JSON text, or for some engines a whole object, but
            // never a number or boolean.
            if !chunk_context.is_buffered && fragment.has_scalar_arguments() {
                return Err(malformed_error());
            }
            if fragment.is_empty() {
                continue;
            }
            // In a buffered answer each element is a separate call. In a chunk, an element with a name is a separate
            // call too, if nothing else distinguishes it from the previous element.
            let unmarked = fragment.id.is_none()
                && fragment.name.is_some()
                && fragment.index.is_none_or(|index| named.contains(&index));
            fragment.is_separate_call = chunk_context.is_buffered || (called.is_some() && unmarked);
            let fresh = fragment.index.filter(|index| fragment.name.is_some() && !named.contains(index));
            named.extend(fresh);
            called = Some(fragment.arguments.filter(|_| called.is_none() && fragment.name.is_none()));
            self.tool_calls.add_fragment(&fragment, &mut context)?;
        }
        if let Some(function) = message.function_call.filter(|_| called.is_none()) {
            let mut fragment = ToolCallFragment::default();
            fragment.parse_function(function).ok_or_else(malformed_error)?;
            self.tool_calls.add_fragment(&fragment, &mut context)?;
        }
        Ok(called)
    }

    fn emit_finish(
        &mut self,
        reason: FinishReason,
        stop: Option<&[u8]>,
        context: ChunkContext<'_>,
        events: &mut Vec<AnswerEvent>,
    ) -> Result<(), UpstreamError> {
        // An answer with only content of an unknown kind is an error, because the client would see an empty answer.
        if self.content == ContentRecognition::Unknown {
            return Err(malformed_error());
        }
        self.tool_calls.check_names_present()?;
        self.tool_calls.flush(&mut FragmentContext {
            source: context.chunk,
            choice: context.choice,
            seed: context.seed,
            may_hold: false,
            split_surrogate: &mut self.split_surrogate,
            events,
        })?;
        self.is_finished = true;
        // Some engines send another chunk after the end of a cut answer, with the finish reason of a regular end.
        let reason = self.cut.filter(|_| reason == FinishReason::Stop).unwrap_or(reason);
        self.cut = is_cut(reason).then_some(reason);
        let stop =
            stop.and_then(string_body).and_then(|stop| EscapedText::from_json(context.chunk.slice_ref(stop)));
        let stop_sequence = stop.filter(|stop| !stop.is_empty());
        events.push(AnswerEvent::Finish { choice: context.choice, reason, stop_sequence });
        Ok(())
    }
}

const fn is_cut(reason: FinishReason) -> bool {
    matches!(reason, FinishReason::Length | FinishReason::ContextWindow | FinishReason::ContentFilter)
}

/// Returns the range of `part` in `chunk`; `None` if `part` is no slice of `chunk`.
fn text_span(chunk: &Bytes, part: &[u8]) -> Option<TextRange> {
    let start = (part.as_ptr() as usize).checked_sub(chunk.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= chunk.len()).then_some(TextRange(start..end))
}

/// Returns the bytes between the quotes of a JSON string.
fn string_body(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slice_of_the_chunk_has_a_range() {
        let memory = Bytes::from_static(b"0123456789");
        let chunk = memory.slice(2..6);
        for (part, expected) in [
            (2..6, Some(0..4)),
            (3..5, Some(1..3)),
            (6..6, Some(4..4)),
            (1..4, None),
            (4..7, None),
            (6..8, None),
            (8..9, None),
        ] {
            let range = text_span(&chunk, &memory.slice(part.clone())).map(|range| range.0);
            assert_eq!(range, expected, "{part:?}");
        }
    }
}
