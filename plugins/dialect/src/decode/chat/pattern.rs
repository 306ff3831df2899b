//! The common case: a chunk like the one before with other text in it.
//!
//! A chunk that was read in full and said nothing but one piece of text is kept
//! as what stands before and after that text. A later chunk with the same bytes
//! around a sound string is the same chunk with other text: nothing else in it
//! can mean anything else, so nothing else needs to be read.

use super::chunk::Only;
use crate::event::{Event, Text};
use bytes::Bytes;
use penstock_wire::sse;

/// Larger frames around a text are not worth keeping.
const MAX_FRAME: usize = 4096;

/// The frame around a text.
pub(super) struct Pattern {
    /// Everything before the text, its opening quote included.
    before: Box<[u8]>,
    /// Everything after it, its closing quote included.
    after: Box<[u8]>,
    choice: u32,
    voice: Voice,
}

/// What the text is.
#[derive(Clone, Copy)]
enum Voice {
    Answer,
    Reasoning,
    /// Arguments of this call.
    Arguments(u32),
}

impl Pattern {
    /// Keeps the frame of a chunk that said one text and nothing else.
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

    /// The text of a chunk with this frame.
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
