//! Emitter of the texts of a chunk: answers, reasoning and refusals. The halves of a surrogate pair that an engine
//! split between two chunks are joined.

use super::super::finish_reason;
use super::choice_content::ContentRecognition;
use super::{malformed_error, string_body};
use crate::decode::text_channel::{SplitSurrogate, TextChannel};
use crate::event::{AnswerEvent, EscapedText};
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::UpstreamError;
use penstock_json_scan::json;

/// Emitter of the text events of one choice.
pub(super) struct TextEmitter<'a> {
    pub(super) chunk: &'a Bytes,
    pub(super) choice: u32,
    pub(super) split_surrogate: &'a mut SplitSurrogate,
    pub(super) events: &'a mut Vec<AnswerEvent>,
}

impl TextEmitter<'_> {
    /// Emits reasoning that is a string, an object with a text, or a list of such objects. Objects without a text, such
    /// as encrypted reasoning, are skipped in a list.
    pub(super) fn emit_reasoning(&mut self, value: Option<&[u8]>) -> Result<(), UpstreamError> {
        let Some(value) = value.filter(|value| matches!(value.first(), Some(b'{' | b'['))) else {
            return self.emit_string(TextChannel::Reasoning, value, None);
        };
        if value.first() == Some(&b'{') {
            let is_empty = json_cursor::members(value).next().is_none();
            let text = reasoning_text(value);
            return match text {
                None if is_empty => Ok(()),
                None => Err(malformed_error()),
                text => self.emit_reasoning(text),
            };
        }
        for part in json_cursor::elements(value) {
            if !json_cursor::is_object(part) {
                return Err(malformed_error());
            }
            self.emit_reasoning(reasoning_text(part))?;
        }
        Ok(())
    }

    /// Emits content that is a string, or a list of parts with text and, from some engines, thinking. For a list,
    /// returns what was recognized in its parts; for a string, [`ContentRecognition::None`].
    pub(super) fn emit_content(
        &mut self,
        value: Option<&[u8]>,
        logprobs: Option<&[u8]>,
    ) -> Result<ContentRecognition, UpstreamError> {
        let Some(list) = value.filter(|value| value.first() == Some(&b'[')) else {
            self.emit_string(TextChannel::Answer, value, logprobs)?;
            return Ok(ContentRecognition::None);
        };
        self.emit_parts(list, TextChannel::Answer)
    }

    fn emit_parts(&mut self, list: &[u8], channel: TextChannel) -> Result<ContentRecognition, UpstreamError> {
        json_cursor::elements(list).try_fold(ContentRecognition::None, |content, part| {
            Ok(content.max(self.emit_part(part, channel)?))
        })
    }

    /// Emits the text of a content part. Returns `Recognized` if the part has a text, even an empty one, else
    /// `Unknown`.
    fn emit_part(&mut self, part: &[u8], channel: TextChannel) -> Result<ContentRecognition, UpstreamError> {
        if !json_cursor::is_object(part) {
            return Err(malformed_error());
        }
        let mut content = ContentRecognition::Unknown;
        let mut members = json::members(part);
        while let Some((key, value)) = members.next_unescaped() {
            match &*key {
                "text" | "thinking" if json_cursor::is_null(value) => continue,
                "text" => self.emit_string(channel, Some(value), None)?,
                "thinking" if value.first() == Some(&b'[') => {
                    self.emit_parts(value, TextChannel::Reasoning)?;
                }
                "thinking" => self.emit_string(TextChannel::Reasoning, Some(value), None)?,
                _ => continue,
            }
            content = ContentRecognition::Recognized;
        }
        Ok(content)
    }

    /// Emits a JSON string as text of a channel, with its log probabilities; nothing for an absent or null value.
    pub(super) fn emit_string(
        &mut self,
        channel: TextChannel,
        value: Option<&[u8]>,
        logprobs: Option<&[u8]>,
    ) -> Result<(), UpstreamError> {
        let value = value.filter(|value| !json_cursor::is_null(value));
        let text = match value.map(string_body) {
            None => return Ok(()),
            Some(None) => return Err(malformed_error()),
            Some(Some([])) => EscapedText::default(),
            Some(Some(inside)) => {
                self.split_surrogate.join(channel, self.chunk, inside).ok_or_else(malformed_error)?
            }
        };
        let choice = self.choice;
        // A token may be a part of a character. Its log probabilities then contain a lone surrogate, which client
        // libraries reject. A line break would end the event of a stream.
        let logprobs = logprobs.map(|logprobs| {
            let repaired = json::repair_surrogates(logprobs);
            match json::replace_line_breaks(repaired.as_deref().unwrap_or(logprobs)) {
                Some(text) => Bytes::from(text),
                None => repaired.map_or_else(|| self.chunk.slice_ref(logprobs), Bytes::from),
            }
        });
        if text.is_empty() && logprobs.as_deref().is_none_or(finish_reason::is_empty_logprobs_object) {
            return Ok(());
        }
        self.events.push(match channel {
            TextChannel::Reasoning => AnswerEvent::Reasoning { choice, text, signature: None },
            TextChannel::Refusal => AnswerEvent::Refusal { choice, text },
            TextChannel::Answer | TextChannel::Arguments(_) => AnswerEvent::Text { choice, text, logprobs },
        });
        Ok(())
    }
}

/// Returns the text of a reasoning object.
fn reasoning_text(object: &[u8]) -> Option<&[u8]> {
    const NAMES: [&str; 5] = ["text", "content", "thinking", "reasoning", "summary"];
    NAMES.into_iter().find_map(|name| json_cursor::member_value(object, name))
}
