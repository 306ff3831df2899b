//! Output item of a response: the part of it that has been decoded.

mod initial_texts;

use super::context::OutputContext;
use super::malformed_error;
use super::part::{
    DecodedPart, FinalTextComparison, InitialText, PartKey, PartKind, chat_logprobs, part_kind_and_text,
};
use crate::decode::text_channel::TextChannel;
use crate::event::{AnswerEvent, EscapedText, MessagePhase};
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;
use penstock_json_scan::json;

/// Maximum number of parts of an item.
const MAX_PARTS: usize = 1024;
/// Separator that is written between two parts of reasoning.
const PARAGRAPH: &str = "\n\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    /// Function call, with its number among the calls of the answer.
    Call(u32),
    /// Item of a type that no client dialect has.
    Other,
}

/// Output item of a response, as far as it has been decoded.
#[derive(Debug)]
pub(super) struct DecodedItem {
    pub(super) output_index: u64,
    /// Position among the items of the answer.
    number: usize,
    pub(super) is_open: bool,
    kind: ItemKind,
    /// Phase of a message.
    phase: Option<MessagePhase>,
    /// True if the start of a message was emitted.
    has_started: bool,
    /// Parts of the item from which text was emitted.
    parts: Vec<DecodedPart>,
    /// Texts that arrived at the start of the item or of a part, and that no other event has repeated so far.
    announced: Vec<InitialText>,
    /// Number of bytes of encrypted reasoning so far.
    sealed_bytes: usize,
}

impl DecodedItem {
    /// Opens an item; emits the start event of a function call.
    pub(super) fn open(
        output_index: u64,
        number: usize,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<Self, UpstreamError> {
        let name = json_cursor::member_value(item, "type").and_then(json_cursor::parse_string);
        let kind = match &*name.ok_or_else(malformed_error)? {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Call(context.start_call(item)?),
            _ => ItemKind::Other,
        };
        let phase = json_cursor::member_value(item, "phase").and_then(json_cursor::parse_string);
        Ok(Self {
            output_index,
            number,
            is_open: true,
            kind,
            phase: phase.and_then(|name| MessagePhase::from_name(&name)),
            has_started: false,
            parts: Vec::new(),
            announced: Vec::new(),
            sealed_bytes: 0,
        })
    }

    /// Returns true if the type `name` is that of this item; all unknown types count as equal.
    pub(super) fn has_type(&self, name: &str) -> bool {
        match self.kind {
            ItemKind::Message => name == "message",
            ItemKind::Reasoning => name == "reasoning",
            ItemKind::Call(_) => name == "function_call",
            ItemKind::Other => !matches!(name, "message" | "reasoning" | "function_call"),
        }
    }

    /// Returns true if the item can have parts of this kind. Items of unknown types can have any kind.
    fn fits(&self, kind: PartKind) -> bool {
        match self.kind {
            ItemKind::Message => matches!(kind, PartKind::Text | PartKind::Refusal),
            ItemKind::Reasoning => matches!(kind, PartKind::Reasoning | PartKind::Summary),
            ItemKind::Call(_) => kind == PartKind::Arguments,
            ItemKind::Other => true,
        }
    }

    fn channel(&self, kind: PartKind) -> TextChannel {
        match (kind, self.kind) {
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                TextChannel::Arguments(usize::try_from(tool).unwrap_or(usize::MAX))
            }
            (PartKind::Text, _) => TextChannel::Answer,
            (PartKind::Refusal, _) => TextChannel::Refusal,
            _ => TextChannel::Reasoning,
        }
    }

    /// Returns true if text of this kind is not emitted: all text of an item of unknown type, and the second kind of
    /// reasoning (content or summary), because both kinds have the same content.
    fn ignores(&self, kind: PartKind) -> bool {
        let is_other_reasoning =
            || self.kind == ItemKind::Reasoning && self.parts.iter().any(|part| part.key.0 != kind);
        self.kind == ItemKind::Other || is_other_reasoning()
    }

    /// Adds the text of one delta event of a part to the output. Text that [`Self::ignores`] is dropped.
    pub(super) fn push_delta(
        &mut self,
        part: PartKey,
        text: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if !self.fits(part.0) {
            return Err(malformed_error());
        }
        if self.ignores(part.0) {
            return Ok(());
        }
        let inside = json_cursor::string_body(text).ok_or_else(malformed_error)?;
        let logprobs = logprobs.and_then(|list| chat_logprobs(part.0, list));
        let text = context
            .split_surrogate
            .join(self.channel(part.0), context.source, inside)
            .ok_or_else(malformed_error)?;
        if inside.is_empty() && logprobs.is_none() {
            return Ok(());
        }
        let is_continued = |announced: &InitialText| {
            announced.key == part && !text.is_empty() && announced.is_continued_by(&text.decoded())
        };
        if !self.has_part(part)
            && let Some(at) = self.announced.iter().position(is_continued)
        {
            let announced = self.announced.remove(at);
            context.subtract_stored_bytes(announced.stored_bytes());
            self.emit(part, EscapedText::new(&announced.text), None, context)?;
        }
        self.emit(part, text, logprobs, context)
    }

    fn has_part(&self, key: PartKey) -> bool {
        self.parts.iter().any(|part| part.key == key)
    }

    /// Emits text of a part of an output item and records it.
    fn emit(
        &mut self,
        key: PartKey,
        text: EscapedText,
        logprobs: Option<Bytes>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let at = match self.parts.iter().position(|part| part.key == key) {
            Some(at) => at,
            None if self.parts.len() >= MAX_PARTS => return Err(UpstreamError::invalid_model_output()),
            None => {
                if self.kind == ItemKind::Reasoning && !self.parts.is_empty() {
                    let text = EscapedText::new(PARAGRAPH);
                    context.events.push(AnswerEvent::Reasoning { choice: 0, text, signature: None });
                }
                self.parts.push(DecodedPart::new(key));
                *context.stored_bytes += size_of::<DecodedPart>();
                self.parts.len() - 1
            }
        };
        context.texts.set_last(self.channel(key.0), (self.number, key));
        if text.is_empty() && logprobs.is_none() {
            return Ok(());
        }
        self.start_message(context);
        if let Some(part) = self.parts.get_mut(at) {
            part.record_emitted_text(&text.decoded(), context.stored_bytes);
        }
        context.events.push(match (key.0, self.kind) {
            (PartKind::Text, _) => AnswerEvent::Text { choice: 0, text, logprobs },
            (PartKind::Refusal, _) => AnswerEvent::Refusal { choice: 0, text },
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                AnswerEvent::ToolCallArguments { choice: 0, tool, fragment: text }
            }
            _ => AnswerEvent::Reasoning { choice: 0, text, signature: None },
        });
        Ok(())
    }

    /// Emits the start of a message before its first text, unless it is the first message and has no phase.
    fn start_message(&mut self, context: &mut OutputContext<'_>) {
        if self.kind != ItemKind::Message || std::mem::replace(&mut self.has_started, true) {
            return;
        }
        let is_next = std::mem::replace(context.has_message, true);
        if is_next || self.phase.is_some() {
            context.events.push(AnswerEvent::MessageStart { phase: self.phase, is_next });
        }
    }

    /// Emits the rest of a part's complete text, beyond what the deltas had. Returns `Malformed` if the complete text
    /// contradicts the emitted text. Also returns `Malformed` if other text of the channel was emitted after the
    /// part, because the missing end can then no longer be emitted in order.
    pub(super) fn push_complete_text(
        &mut self,
        key: PartKey,
        text: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if !self.fits(key.0) {
            return Err(malformed_error());
        }
        let inside = json_cursor::string_body(text).ok_or_else(malformed_error)?;
        if inside.is_empty() || self.ignores(key.0) {
            return Ok(());
        }
        if let Some(at) = self.announced.iter().position(|announced| announced.key == key) {
            context.subtract_stored_bytes(self.announced.remove(at).stored_bytes());
        }
        let Some(part) = self.parts.iter().find(|part| part.key == key) else {
            return self.push_delta(key, text, logprobs, context);
        };
        let whole = json::unescape_lossy(inside).ok_or_else(malformed_error)?;
        let rest = match part.compare_final_text(&whole) {
            FinalTextComparison::Emitted => return Ok(()),
            FinalTextComparison::Continues(rest) => EscapedText::new(rest),
            FinalTextComparison::Contradicts => return Err(malformed_error()),
        };
        let channel = self.channel(key.0);
        if !context.texts.is_last(channel, (self.number, key)) {
            return Err(malformed_error());
        }
        context.split_surrogate.discard(channel);
        self.emit(key, rest, None, context)
    }

    /// Closes the item and emits the missing ends of its texts.
    pub(super) fn close(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        self.is_open = false;
        let required = match self.kind {
            ItemKind::Call(_) => Some("arguments"),
            ItemKind::Message => Some("content"),
            ItemKind::Reasoning | ItemKind::Other => None,
        };
        if required.is_some_and(|name| json_cursor::member_value(item, name).is_none()) {
            return Err(malformed_error());
        }
        self.emit_missing_texts(item, context)?;
        self.emit_initial_texts(context)
    }

    /// Emits the rest of each text of a complete item, beyond what the deltas had.
    pub(super) fn emit_missing_texts(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        let names: &[&str] = match self.kind {
            ItemKind::Other => &[],
            ItemKind::Call(_) => {
                let arguments = json_cursor::member_value(item, "arguments");
                let key = (PartKind::Arguments, 0);
                return arguments.map_or(Ok(()), |text| self.push_complete_text(key, text, None, context));
            }
            ItemKind::Message => &["content"],
            ItemKind::Reasoning => {
                self.record_sealed(item, context);
                &["content", "summary"]
            }
        };
        names.iter().try_for_each(|name| {
            json_cursor::member_value(item, name).map_or(Ok(()), |parts| self.push_parts(parts, context))
        })
    }

    /// Emits the size of the encrypted reasoning of an item, without the bytes that were emitted before.
    fn record_sealed(&mut self, item: &[u8], context: &mut OutputContext<'_>) {
        let sealed = json_cursor::member_value(item, "encrypted_content").and_then(json_cursor::string_body);
        let bytes = sealed.map_or(0, <[u8]>::len).saturating_sub(self.sealed_bytes);
        self.sealed_bytes += bytes;
        context.events.extend((bytes > 0).then_some(AnswerEvent::SealedReasoning { bytes }));
    }

    /// Emits the rest of each text of complete parts, beyond what the deltas had. Parts of unknown types are ignored.
    fn push_parts(&mut self, parts: &[u8], context: &mut OutputContext<'_>) -> Result<(), UpstreamError> {
        if !json_cursor::is_array(parts) {
            return Err(malformed_error());
        }
        for (index, part) in (0_u64..).zip(json_cursor::elements(parts)) {
            self.push_complete_part(part, |_| Some(index), context)?;
        }
        Ok(())
    }

    /// Emits the rest of a complete part's text, beyond what the deltas had. `index` returns the index of the part,
    /// given its kind; `None` for an invalid index.
    pub(super) fn push_complete_part(
        &mut self,
        part: &[u8],
        index: impl Fn(PartKind) -> Option<u64>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if json_cursor::member_value(part, "type").and_then(json_cursor::parse_string).is_none() {
            return Err(malformed_error());
        }
        let Some((kind, text)) = part_kind_and_text(part) else { return Ok(()) };
        let text = text.ok_or_else(malformed_error)?;
        let logprobs = json_cursor::member_value(part, "logprobs");
        self.push_complete_text((kind, index(kind).ok_or_else(malformed_error)?), text, logprobs, context)
    }
}
