//! Fast path for a chunk that differs from the previous one only in its text.
//!
//! If a fully parsed chunk contains only one piece of text, the bytes before and after the text are stored. A later
//! chunk with the same bytes around a valid string body differs only in its text, so nothing else needs to be parsed.

use super::chunk::Only;
use crate::event::{Event, Text};
use bytes::Bytes;
use penstock_wire::sse;

/// Maximum bytes of a stored frame.
const MAX_FRAME: usize = 4096;

/// Bytes around the text of a chunk.
pub(super) struct Pattern {
    /// Bytes before the text, with its opening quote.
    before: Box<[u8]>,
    /// Bytes after the text, with its closing quote.
    after: Box<[u8]>,
    choice: u32,
    voice: Voice,
}

/// Kind of the text.
#[derive(Clone, Copy)]
enum Voice {
    Answer,
    Reasoning,
    /// Arguments of this tool call.
    Arguments(u32),
}

impl Pattern {
    /// Stores the frame of a chunk that contained one text and nothing else.
    pub(super) fn learn(chunk: &Bytes, only: Option<Only>, events: &[Event]) -> Option<Self> {
        let only = only?;
        let (choice, voice) = match events {
            [Event::Text { choice, logprobs: None, .. }] => (*choice, Voice::Answer),
            [Event::Reasoning { choice, .. }] => (*choice, Voice::Reasoning),
            [Event::ToolArguments { choice, tool, .. }] => (*choice, Voice::Arguments(*tool)),
            _ => return None,
        };
        let (before, after) = (chunk.get(..only.0.start)?, chunk.get(only.0.end..)?);
        (before.len() + after.len() <= MAX_FRAME).then(|| Self {
            before: before.into(),
            after: after.into(),
            choice,
            voice,
        })
    }

    /// Returns the text event of a chunk with this frame.
    #[inline]
    pub(super) fn read(&self, event: &sse::Event) -> Option<Event> {
        let data = &event.data;
        let end = data.len().checked_sub(self.after.len())?;
        let inside = self.before.len()..end;
        if inside.is_empty() || event.event.is_some() || event.comment.is_some() {
            return None;
        }
        if data.get(..inside.start)? != &*self.before || data.get(end..)? != &*self.after {
            return None;
        }
        let text = Text::from_json(data.slice(inside))?;
        let choice = self.choice;
        Some(match self.voice {
            Voice::Answer => Event::Text { choice, text, logprobs: None },
            Voice::Reasoning => Event::Reasoning { choice, text, signature: None },
            Voice::Arguments(tool) => Event::ToolArguments { choice, tool, fragment: text },
        })
    }
}
