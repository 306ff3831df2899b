//! Tolerant decoder of the chat-completions dialect: engines differ in nearly every detail, and every unambiguous
//! variant is accepted.

mod chunk;
#[cfg(test)]
mod parallel_tests;
mod pattern;
#[cfg(test)]
mod tests;
mod tools;
mod voice;
mod words;

pub(crate) use tools::made_up;

use super::{Opening, cut};
use crate::classify;
use crate::event::Event;
use bytes::Bytes;
use chunk::Chunks;
use pattern::Pattern;
use penstock_contract::{Dialect, Fault, FaultKind, ReasoningName};
use penstock_wire::{figures, json, sse};

/// Decoder of a streamed completion.
pub struct Decoder {
    opening: Opening,
    sse: sse::Decoder,
    chunks: Chunks,
    /// Frame of the last chunk that contained only text.
    pattern: Option<Pattern>,
    /// Name of the reasoning member in a buffered completion.
    reasoning: Option<ReasoningName>,
    started: bool,
}

impl Decoder {
    /// Creates a decoder at the start of a stream; `id` is the seed of generated tool call ids.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self {
            opening: Opening::default(),
            sse: sse::Decoder::new(super::MAX_EVENT),
            chunks: Chunks::new(id, false),
            pattern: None,
            reasoning: None,
            started: false,
        }
    }

    fn take(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(text) = self.pattern.as_ref().and_then(|pattern| pattern.read(event)) {
            if let Event::ToolArguments { choice, tool, fragment } = &text {
                self.chunks.more(*choice, *tool, fragment);
            }
            events.push(text);
            return Ok(());
        }
        self.study(event, events)
    }

    /// Decodes an event that is not on the fast path.
    fn study(&mut self, event: &sse::Event, events: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(comment) = &event.comment {
            events.push(figures::comment(comment).map_or(Event::Ping, Event::Energy));
        }
        let data = json::trim(&event.data);
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            events.push(Event::End);
            return Ok(());
        }
        if event.event.as_deref() == Some(b"error") {
            return Err(classify::in_band(data));
        }
        if !self.started {
            self.started = true;
            events.push(Event::Start);
        }
        let before = events.len();
        let only = self.chunks.take(&event.data, events)?;
        if event.event.is_none() {
            self.pattern = Pattern::learn(&event.data, only, events.get(before..).unwrap_or_default());
        }
        Ok(())
    }
}

impl super::Decoder for Decoder {
    fn push(&mut self, bytes: Bytes, events: &mut Vec<Event>) -> Result<(), Fault> {
        let Some(bytes) = self.opening.push(bytes, super::MAX_EVENT)? else { return Ok(()) };
        self.sse.push(bytes);
        while let Some(event) = self.sse.next() {
            let event = event.map_err(|sse::TooLong| Fault::new(FaultKind::Malformed))?;
            self.take(&event, events)?;
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(object) = self.opening.take_object() {
            let read = super::whole(Dialect::Chat, object, self.chunks.seed(), events);
            self.reasoning = read.map_err(cut)?;
            return Ok(());
        }
        let Some(event) = self.sse.end() else { return Ok(()) };
        self.take(&event, events).map_err(cut)
    }

    fn reasoning_name(&self) -> Option<ReasoningName> {
        self.reasoning.or(self.chunks.reasoning_name())
    }

    fn kept(&self) -> usize {
        self.opening.kept() + self.sse.kept() + self.chunks.kept()
    }
}

/// Appends the events of a buffered completion and returns the name of its reasoning member.
///
/// # Errors
/// Returns `Malformed` if the body is no completion, and `InBand` for an error object.
pub fn whole(body: Bytes, id: &str, events: &mut Vec<Event>) -> Result<Option<ReasoningName>, Fault> {
    events.push(Event::Start);
    let before = events.len();
    let mut chunks = Chunks::new(id, true);
    chunks.take(&body, events)?;
    let spoken = |event: &Event| matches!(event, Event::Finish { .. });
    if !events.iter().skip(before).any(spoken) {
        return Err(Fault::new(FaultKind::Malformed));
    }
    events.push(Event::End);
    Ok(chunks.reasoning_name())
}
