//! Output item of a response: the part of it that has been decoded.

mod complete_items;
mod complete_texts;
mod initial_texts;
mod unnamed_call;

use super::context::OutputContext;
use super::item_reference::ItemReference;
use super::malformed_error;
use super::part::{InitialText, OutputPartDecoder, PartKey, PartKind, chat_logprobs};
use super::text_record::Fingerprint;
use crate::decode::text_channel::TextChannel;
use crate::event::{AnswerEvent, EscapedText, MessagePhase};
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

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
    /// Function call of which only arguments have arrived. Nothing of it is emitted before its name is known.
    UnnamedCall,
    /// Item of a type that no client dialect has.
    Other,
}

/// Decoder of one output item: which of its texts have been emitted, and which are still missing.
#[derive(Debug)]
pub(super) struct OutputItemDecoder {
    pub(super) reference: ItemReference,
    /// Position among the items of the answer.
    number: usize,
    pub(super) is_open: bool,
    kind: ItemKind,
    /// Name of a function call.
    name: Option<Fingerprint>,
    /// Phase of a message.
    phase: Option<MessagePhase>,
    /// True if the start of a message was emitted.
    has_started: bool,
    /// Parts of the item from which text was emitted.
    parts: Vec<OutputPartDecoder>,
    /// Texts that arrived at the start of the item or of a part, and that no other event has repeated so far.
    announced: Vec<InitialText>,
    /// Highest index of a part for which an event stated the start.
    last_added: Option<u64>,
    /// Number of bytes of encrypted reasoning so far.
    sealed_bytes: usize,
}

impl OutputItemDecoder {
    /// Opens an item; emits the start event of a function call.
    pub(super) fn open(
        reference: ItemReference,
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
        let mut open = Self::new(reference, number, kind);
        open.phase = phase.and_then(|name| MessagePhase::from_name(&name));
        open.name = call_name(item);
        Ok(open)
    }

    /// Opens the item of a part of this kind, for which the engine has sent no event.
    pub(super) const fn open_for_part(reference: ItemReference, number: usize, kind: PartKind) -> Self {
        let kind = match kind {
            PartKind::Text | PartKind::Refusal => ItemKind::Message,
            PartKind::Reasoning | PartKind::Summary => ItemKind::Reasoning,
            PartKind::Arguments => ItemKind::UnnamedCall,
        };
        Self::new(reference, number, kind)
    }

    const fn new(reference: ItemReference, number: usize, kind: ItemKind) -> Self {
        Self {
            reference,
            number,
            is_open: true,
            kind,
            name: None,
            phase: None,
            has_started: false,
            parts: Vec::new(),
            announced: Vec::new(),
            last_added: None,
            sealed_bytes: 0,
        }
    }

    /// Returns true if the type `name` is that of this item; all unknown types count as equal.
    pub(super) fn has_type(&self, name: &str) -> bool {
        match self.kind {
            ItemKind::Message => name == "message",
            ItemKind::Reasoning => name == "reasoning",
            ItemKind::Call(_) | ItemKind::UnnamedCall => name == "function_call",
            ItemKind::Other => !matches!(name, "message" | "reasoning" | "function_call"),
        }
    }

    /// Returns true if text of the item was emitted, or the start of a call.
    pub(super) fn has_output(&self) -> bool {
        matches!(self.kind, ItemKind::Call(_)) || !self.parts.is_empty()
    }

    /// Returns true if text of the item was emitted, or arguments of an unnamed call have arrived.
    pub(super) fn has_text(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Returns true if the item is a function call.
    pub(super) const fn is_call(&self) -> bool {
        matches!(self.kind, ItemKind::Call(_) | ItemKind::UnnamedCall)
    }

    /// Returns true if no client dialect has items of this type.
    pub(super) fn is_of_other_type(&self) -> bool {
        self.kind == ItemKind::Other
    }

    /// Returns true if the item can have parts of this kind. Items of unknown types can have any kind.
    pub(super) fn fits(&self, kind: PartKind) -> bool {
        match self.kind {
            ItemKind::Message => matches!(kind, PartKind::Text | PartKind::Refusal),
            ItemKind::Reasoning => matches!(kind, PartKind::Reasoning | PartKind::Summary),
            ItemKind::Call(_) | ItemKind::UnnamedCall => kind == PartKind::Arguments,
            ItemKind::Other => true,
        }
    }

    fn channel(&self, kind: PartKind) -> TextChannel {
        match (kind, self.kind) {
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                TextChannel::Arguments(usize::try_from(tool).unwrap_or(usize::MAX))
            }
            (PartKind::Arguments, _) => TextChannel::Arguments(usize::MAX - self.number),
            (PartKind::Text, _) => TextChannel::Answer,
            (PartKind::Refusal, _) => TextChannel::Refusal,
            (PartKind::Reasoning | PartKind::Summary, _) => TextChannel::Reasoning,
        }
    }

    /// Returns true if text of this kind is not emitted: all text of an item of unknown type, and the second kind of
    /// reasoning (content or summary), because both kinds have the same content.
    fn ignores(&self, kind: PartKind) -> bool {
        let is_other_reasoning =
            || self.kind == ItemKind::Reasoning && self.parts.iter().any(|part| part.kind != kind);
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
        let Some((text, logprobs)) = self.decode_delta(part.0, text, logprobs, context)? else {
            return Ok(());
        };
        self.give_key_to_initial_text(part);
        let is_continued = |announced: &InitialText| {
            announced.key == part && !text.is_empty() && announced.is_continued_by(&text.decoded())
        };
        let continued = self.announced.iter().position(is_continued).filter(|_| !self.has_part(part));
        let at = self.delta_part(part, context)?;
        if let Some(continued) = continued {
            let announced = self.announced.remove(continued);
            context.subtract_stored_bytes(announced.stored_bytes());
            self.emit(at, EscapedText::new(&announced.text), None, context);
        }
        self.emit(at, text, logprobs, context);
        Ok(())
    }

    /// Returns the text of a delta, a JSON string, and its log probabilities; `None` if both are empty.
    fn decode_delta(
        &self,
        kind: PartKind,
        text: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<Option<(EscapedText, Option<Bytes>)>, UpstreamError> {
        let inside = json_cursor::string_body(text).ok_or_else(malformed_error)?;
        let logprobs = logprobs.and_then(|list| chat_logprobs(kind, list));
        let text = context
            .split_surrogate
            .join(self.channel(kind), context.source, inside)
            .ok_or_else(malformed_error)?;
        Ok((!inside.is_empty() || logprobs.is_some()).then_some((text, logprobs)))
    }

    fn has_part(&self, key: PartKey) -> bool {
        self.parts.iter().any(|part| part.has_key(key))
    }

    /// Returns the position of the part to which a delta with this key adds text. If there is none, the delta
    /// continues the last part of its kind or begins a part.
    fn delta_part(&mut self, key: PartKey, context: &mut OutputContext<'_>) -> Result<usize, UpstreamError> {
        if let Some(at) = self.parts.iter().position(|part| part.has_key(key)) {
            if let Some(part) = self.parts.get_mut(at) {
                part.count_delta();
            }
            return Ok(at);
        }
        let is_announced = self.is_added(key) || self.announced.iter().any(|announced| announced.key == key);
        let last = self.parts.iter().rposition(|part| part.kind == key.0).filter(|_| !is_announced);
        match last.filter(|at| self.parts.get_mut(*at).is_some_and(|part| part.extend_to(key))) {
            Some(at) => Ok(at),
            None => self.add_part(key, context),
        }
    }

    /// Returns true if an event stated the start of the part of this key.
    fn is_added(&self, key: PartKey) -> bool {
        self.last_added.is_some_and(|last| key.1 <= last)
    }

    /// Adds a part; returns its position. Emits the separator of two parts of reasoning.
    fn add_part(&mut self, key: PartKey, context: &mut OutputContext<'_>) -> Result<usize, UpstreamError> {
        if self.parts.len() >= MAX_PARTS {
            return Err(UpstreamError::invalid_model_output());
        }
        if self.kind == ItemKind::Reasoning && !self.parts.is_empty() {
            let text = EscapedText::new(PARAGRAPH);
            context.events.push(AnswerEvent::Reasoning { choice: 0, text, signature: None });
        }
        self.parts.push(OutputPartDecoder::new(key));
        *context.stored_bytes += size_of::<OutputPartDecoder>();
        Ok(self.parts.len() - 1)
    }

    /// Emits text of the part at this position and records it.
    fn emit(
        &mut self,
        at: usize,
        text: EscapedText,
        logprobs: Option<Bytes>,
        context: &mut OutputContext<'_>,
    ) {
        let Some(kind) = self.parts.get(at).map(|part| part.kind) else { return };
        context.texts.set_last(self.channel(kind), (self.number, at));
        if text.is_empty() && logprobs.is_none() {
            return;
        }
        self.start_message(context);
        if let Some(part) = self.parts.get_mut(at) {
            part.text.append(&text.decoded(), context.stored_bytes);
        }
        context.events.push(match (kind, self.kind) {
            (_, ItemKind::UnnamedCall) => return,
            (PartKind::Text, _) => AnswerEvent::Text { choice: 0, text, logprobs },
            (PartKind::Refusal, _) => AnswerEvent::Refusal { choice: 0, text },
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                AnswerEvent::ToolCallArguments { choice: 0, tool, fragment: text }
            }
            _ => AnswerEvent::Reasoning { choice: 0, text, signature: None },
        });
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
}

/// Returns the fingerprint of the name of a function call.
fn call_name(item: &[u8]) -> Option<Fingerprint> {
    let name = json_cursor::member_value(item, "name").and_then(json_cursor::parse_string)?;
    Some(Fingerprint::of(name.bytes()))
}
