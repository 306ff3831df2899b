//! Output item of a response, and what has been decoded of it.

use super::{OutputContext, event_text, malformed_error};
use crate::decode::text_channel::TextChannel;
use crate::decode::{MAX_NAME, MAX_TOOLS};
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;

/// Maximum number of parts of an item.
const MAX_PARTS: usize = 1024;
/// Text between two parts of reasoning.
const PARAGRAPH: &str = "\n\n";

/// Kind of text in an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// `output_text`.
    Text,
    /// `refusal`.
    Refusal,
    /// `reasoning_text`.
    Reasoning,
    /// `reasoning_summary_text`, which counts where no reasoning itself is given.
    Summary,
    /// Arguments of a function call.
    Arguments,
}

impl PartKind {
    /// Returns the kind of an event that carries text, and the member with the text.
    pub(super) fn of_event(name: &str) -> Option<(Self, &'static str)> {
        let (part, stage) = name.strip_prefix("response.")?.rsplit_once('.')?;
        let (kind, whole) = match part {
            "output_text" => (Self::Text, "text"),
            "refusal" => (Self::Refusal, "refusal"),
            "reasoning_text" => (Self::Reasoning, "text"),
            "reasoning_summary_text" => (Self::Summary, "text"),
            "function_call_arguments" => (Self::Arguments, "arguments"),
            _ => return None,
        };
        match stage {
            "delta" => Some((kind, "delta")),
            "done" => Some((kind, whole)),
            _ => None,
        }
    }

    /// Returns the kind of a part by its `type`, and the member with its text.
    fn of_part(name: &str) -> Option<(Self, &'static str)> {
        match name {
            "output_text" => Some((Self::Text, "text")),
            "refusal" => Some((Self::Refusal, "refusal")),
            "reasoning_text" | "text" => Some((Self::Reasoning, "text")),
            "summary_text" => Some((Self::Summary, "text")),
            _ => None,
        }
    }
}

/// Kind and index of a part.
pub(super) type PartKey = (PartKind, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Message,
    Reasoning,
    /// Function call with its number in the answer.
    Call(u32),
    /// Item of a type that the clients of no dialect know.
    Other,
}

/// Output item.
#[derive(Debug)]
pub(super) struct DecodedItem {
    pub(super) output_index: u64,
    pub(super) is_open: bool,
    kind: ItemKind,
    /// Parts with text so far.
    parts: Vec<PartKey>,
}

impl DecodedItem {
    /// Opens an item; a function call starts with it.
    pub(super) fn open(
        output_index: u64,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<Self, UpstreamError> {
        let name = json_cursor::member_value(item, "type").and_then(json_cursor::parse_string);
        let kind = match &*name.ok_or_else(malformed_error)? {
            "message" => ItemKind::Message,
            "reasoning" => ItemKind::Reasoning,
            "function_call" => ItemKind::Call(start_call(item, context)?),
            _ => ItemKind::Other,
        };
        Ok(Self { output_index, is_open: true, kind, parts: Vec::new() })
    }

    /// Returns true if the item has parts of this kind. Items of unknown types have any.
    fn fits(&self, kind: PartKind) -> bool {
        match self.kind {
            ItemKind::Message => matches!(kind, PartKind::Text | PartKind::Refusal),
            ItemKind::Reasoning => matches!(kind, PartKind::Reasoning | PartKind::Summary),
            ItemKind::Call(_) => kind == PartKind::Arguments,
            ItemKind::Other => true,
        }
    }

    /// Adds a delta of a part.
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
        let channel = match (part.0, self.kind) {
            (_, ItemKind::Other) => return Ok(()),
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                TextChannel::Arguments(usize::try_from(tool).unwrap_or(usize::MAX))
            }
            (PartKind::Text, _) => TextChannel::Answer,
            (PartKind::Refusal, _) => TextChannel::Refusal,
            _ => TextChannel::Reasoning,
        };
        if self.kind == ItemKind::Reasoning && self.parts.iter().any(|(kind, _)| *kind != part.0) {
            // The reasoning itself and its summary say the same.
            return Ok(());
        }
        let inside = json_cursor::string_body(text).ok_or_else(malformed_error)?;
        let logprobs = logprobs.and_then(|list| chat_logprobs(part.0, list));
        let text =
            context.split_surrogate.join(channel, context.source, inside).ok_or_else(malformed_error)?;
        if inside.is_empty() && logprobs.is_none() {
            return Ok(());
        }
        if !self.parts.contains(&part) {
            if self.parts.len() >= MAX_PARTS {
                return Err(UpstreamError::model_output());
            }
            if self.kind == ItemKind::Reasoning && !self.parts.is_empty() {
                let text = EscapedText::new(PARAGRAPH);
                context.events.push(AnswerEvent::Reasoning { choice: 0, text, signature: None });
            }
            self.parts.push(part);
        }
        if text.is_empty() && logprobs.is_none() {
            return Ok(());
        }
        context.events.push(match (part.0, self.kind) {
            (PartKind::Text, _) => AnswerEvent::Text { choice: 0, text, logprobs },
            (PartKind::Refusal, _) => AnswerEvent::Refusal { choice: 0, text },
            (PartKind::Arguments, ItemKind::Call(tool)) => {
                AnswerEvent::ToolCallArguments { choice: 0, tool, fragment: text }
            }
            _ => AnswerEvent::Reasoning { choice: 0, text, signature: None },
        });
        Ok(())
    }

    /// Adds the whole text of a part, unless a delta of it has arrived.
    pub(super) fn push_whole(
        &mut self,
        part: PartKey,
        text: &[u8],
        logprobs: Option<&[u8]>,
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        if self.parts.contains(&part) {
            return Ok(());
        }
        self.push_delta(part, text, logprobs, context)
    }

    /// Closes the item and adds the parts of which no text has arrived.
    pub(super) fn close(
        &mut self,
        item: &[u8],
        context: &mut OutputContext<'_>,
    ) -> Result<(), UpstreamError> {
        self.is_open = false;
        match self.kind {
            ItemKind::Other => Ok(()),
            ItemKind::Call(_) => {
                let arguments = json_cursor::member_value(item, "arguments").ok_or_else(malformed_error)?;
                self.push_whole((PartKind::Arguments, 0), arguments, None, context)
            }
            ItemKind::Message => {
                let content = json_cursor::member_value(item, "content").ok_or_else(malformed_error)?;
                self.push_parts(content, context)
            }
            ItemKind::Reasoning => {
                for name in ["content", "summary"] {
                    let parts = json_cursor::member_value(item, name);
                    parts.map(|parts| self.push_parts(parts, context)).transpose()?;
                }
                Ok(())
            }
        }
    }

    /// Adds the parts of a complete item. Parts of unknown types are ignored.
    fn push_parts(&mut self, parts: &[u8], context: &mut OutputContext<'_>) -> Result<(), UpstreamError> {
        if !json_cursor::is_array(parts) {
            return Err(malformed_error());
        }
        for (index, part) in (0_u64..).zip(json_cursor::elements(parts)) {
            let name = json_cursor::member_value(part, "type").and_then(json_cursor::parse_string);
            let Some((kind, member)) = PartKind::of_part(&name.ok_or_else(malformed_error)?) else {
                continue;
            };
            let text = json_cursor::member_value(part, member).ok_or_else(malformed_error)?;
            let logprobs = json_cursor::member_value(part, "logprobs");
            self.push_whole((kind, index), text, logprobs, context)?;
        }
        Ok(())
    }
}

/// Starts a function call; returns its number.
fn start_call(item: &[u8], context: &mut OutputContext<'_>) -> Result<u32, UpstreamError> {
    let text = |name| json_cursor::member_value(item, name).map(|value| event_text(context.source, value));
    let id = text("call_id").or_else(|| text("id")).ok_or_else(malformed_error)??;
    let name = text("name").ok_or_else(malformed_error)??;
    let tool = *context.tool_count;
    let is_named = (1..=MAX_NAME).contains(&name.escaped().len());
    if !is_named || usize::try_from(tool).is_ok_and(|tool| tool >= MAX_TOOLS) {
        return Err(UpstreamError::model_output());
    }
    if id.is_empty() || id.escaped().len() > MAX_NAME {
        return Err(malformed_error());
    }
    *context.tool_count += 1;
    context.events.push(AnswerEvent::ToolCallStart { choice: 0, tool, id, name });
    Ok(tool)
}

/// Returns the log probabilities of a text in the form of the chat dialect; `None` if there are none.
fn chat_logprobs(kind: PartKind, list: &[u8]) -> Option<Bytes> {
    let has_tokens = json_cursor::is_array(list) && json_cursor::elements(list).next().is_some();
    (kind == PartKind::Text && has_tokens)
        .then(|| Bytes::from([br#"{"content":"#, list, br#","refusal":null}"#].concat()))
}
