//! Fast path for a chunk that differs from the previous one only in its text.
//!
//! If a fully parsed chunk contains only one text, the bytes before and after the text are stored. If a later chunk has
//! the same bytes around a valid string body, only the text differs, and nothing else needs to be parsed.

use super::chunk::TextRange;
use crate::event::{AnswerEvent, EscapedText};
use bytes::Bytes;
use penstock_http_wire::sse;

/// Maximum number of bytes stored around the text of a chunk.
const MAX_FRAME_BYTES: usize = 4096;

/// Bytes before and after the text of a chunk that contains only one text.
pub(super) struct ChunkFrame {
    /// Bytes of the event before the text, with the opening quote of the text.
    prefix: Box<[u8]>,
    /// Bytes of the event after the text, with the closing quote of the text.
    suffix: Box<[u8]>,
    choice: u32,
    text_kind: FrameTextKind,
}

/// Kind of the text that a chunk contains.
#[derive(Clone, Copy)]
enum FrameTextKind {
    Answer,
    Reasoning,
    /// Arguments of this tool call.
    Arguments(u32),
}

impl ChunkFrame {
    /// Returns the frame of a chunk: the bytes around its only text. `None` if the chunk contains anything else, or if
    /// the frame is too long.
    pub(super) fn from_chunk(chunk: &Bytes, only: Option<TextRange>, events: &[AnswerEvent]) -> Option<Self> {
        let only = only?;
        let (choice, voice) = match events {
            [AnswerEvent::Text { choice, logprobs: None, .. }] => (*choice, FrameTextKind::Answer),
            [AnswerEvent::Reasoning { choice, .. }] => (*choice, FrameTextKind::Reasoning),
            [AnswerEvent::ToolCallArguments { choice, tool, .. }] => {
                (*choice, FrameTextKind::Arguments(*tool))
            }
            _ => return None,
        };
        let (before, after) = (chunk.get(..only.0.start)?, chunk.get(only.0.end..)?);
        (before.len() + after.len() <= MAX_FRAME_BYTES).then(|| Self {
            prefix: before.into(),
            suffix: after.into(),
            choice,
            text_kind: voice,
        })
    }

    /// Returns the event of a chunk that differs from the earlier chunk only in its text; `None` for any other chunk.
    #[inline]
    pub(super) fn match_event(&self, event: &sse::SseEvent) -> Option<AnswerEvent> {
        let data = &event.data;
        let end = data.len().checked_sub(self.suffix.len())?;
        let inside = self.prefix.len()..end;
        if inside.is_empty() || event.event.is_some() || event.comment.is_some() {
            return None;
        }
        if data.get(..inside.start)? != &*self.prefix || data.get(end..)? != &*self.suffix {
            return None;
        }
        let text = EscapedText::from_json(data.slice(inside))?;
        let choice = self.choice;
        Some(match self.text_kind {
            FrameTextKind::Answer => AnswerEvent::Text { choice, text, logprobs: None },
            FrameTextKind::Reasoning => AnswerEvent::Reasoning { choice, text, signature: None },
            FrameTextKind::Arguments(tool) => AnswerEvent::ToolCallArguments { choice, tool, fragment: text },
        })
    }
}
