//! Decoder of the messages dialect.
//!
//! The order of events is checked where it affects the meaning: nothing before `message_start`, deltas only for an open
//! block. Unknown events and blocks are ignored.

mod usage;
mod whole;

#[cfg(test)]
mod tests;

pub use whole::whole;

use super::{Opening, cut};
use crate::classify;
use crate::event::{Event, Text};
use crate::pieces::{compact_into, within};
use crate::scan;
use bytes::Bytes;
use penstock_contract::{Dialect, Fault, FaultKind, Finish, Measured};
use penstock_wire::{figures, json, sse};
use std::borrow::Cow;
use usage::Count;

/// Decoder of a streamed message.
pub struct Decoder {
    opening: Opening,
    sse: sse::Decoder,
    started: bool,
    /// Content blocks by index.
    blocks: Vec<Block>,
    tools: u32,
    /// Bytes of inputs in the start events of open blocks.
    inputs: usize,
    count: Count,
}

/// Content block of the stream.
#[derive(Default)]
struct Block {
    kind: Kind,
    open: bool,
    /// Input of a tool call in its start event, until a delta arrives.
    input: Option<Bytes>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Tool(u32),
    /// Block of a type that the clients of neither dialect know.
    #[default]
    Other,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Creates a decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self {
            opening: Opening::default(),
            sse: sse::Decoder::new(super::MAX_EVENT),
            started: false,
            blocks: Vec::new(),
            tools: 0,
            inputs: 0,
            count: Count::default(),
        }
    }

    /// Returns the bytes of inputs in the start events of open blocks.
    pub(crate) const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Decodes the data of one event.
    fn take(&mut self, data: &Bytes, events: &mut Vec<Event>) -> Result<(), Fault> {
        if json::trim(data).is_empty() {
            return Ok(());
        }
        self.take_seen(data, &Seen::read(data), events)
    }

    /// Decodes the data of one event, given its members.
    ///
    /// # Errors
    /// Returns the errors of [`super::Decoder::push`].
    pub(crate) fn take_seen(
        &mut self,
        data: &Bytes,
        seen: &Seen<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        events.extend(seen.measured.map(Event::Energy));
        match &*seen.kind {
            "error" => Err(classify::in_band(data)),
            "ping" => {
                events.push(Event::Ping);
                Ok(())
            }
            "message_start" if !self.started => {
                self.started = true;
                events.push(Event::Start);
                if seen.message.is_some_and(|message| !scan::is_object(message)) {
                    return Err(malformed());
                }
                let usage = seen.message.and_then(|message| scan::member(message, "usage"));
                self.count_usage(usage, Count::open, events);
                Ok(())
            }
            "" | "message_start" => Err(malformed()),
            _ if !self.started => Err(malformed()),
            "content_block_start" => self.block_start(data, seen, events),
            "content_block_delta" => self.block_delta(data, seen, events),
            "content_block_stop" => self.block_stop(seen, events),
            "message_delta" => self.message_delta(data, seen, events),
            "message_stop" => {
                events.push(Event::End);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn block_start(&mut self, data: &Bytes, seen: &Seen<'_>, events: &mut Vec<Event>) -> Result<(), Fault> {
        let block = seen.block.ok_or_else(malformed)?;
        if seen.index != Some(self.blocks.len()) || self.blocks.len() > super::MAX_TOOLS * 8 {
            return Err(malformed());
        }
        let mut open = Block { open: true, ..Block::default() };
        match &*kind_of(block)? {
            "text" => {
                open.kind = Kind::Text;
                text_event(text_of(data, scan::member(block, "text"))?, events);
            }
            "thinking" => {
                open.kind = Kind::Thinking;
                let text = text_of(data, scan::member(block, "thinking"))?;
                if !text.is_empty() {
                    events.push(Event::Reasoning { choice: 0, text, signature: None });
                }
            }
            "tool_use" => {
                let tool = self.tools;
                let (id, name) = named(data, block)?;
                if tool as usize >= super::MAX_TOOLS {
                    return Err(Fault::model_output());
                }
                self.tools += 1;
                open.kind = Kind::Tool(tool);
                let input = scan::member(block, "input");
                if input.is_some_and(|input| !scan::is_object(input)) {
                    return Err(malformed());
                }
                let input = input.filter(|input| scan::members(input).next().is_some());
                open.input = input.and_then(|input| within(data, input));
                self.inputs += open.input.as_ref().map_or(0, Bytes::len);
                events.push(Event::ToolStart { choice: 0, tool, id, name });
            }
            _ => {}
        }
        self.blocks.push(open);
        Ok(())
    }

    fn block_delta(&mut self, data: &Bytes, seen: &Seen<'_>, events: &mut Vec<Event>) -> Result<(), Fault> {
        let block = seen.index.and_then(|index| self.blocks.get_mut(index)).filter(|block| block.open);
        let (block, delta) = block.zip(seen.delta).ok_or_else(malformed)?;
        let (mut kind, mut said) = (None, None);
        for (key, value) in scan::members(delta) {
            match &*key {
                "type" => kind = scan::string(value),
                "text" | "thinking" | "partial_json" | "signature" => said = Some(value),
                _ => {}
            }
        }
        match (&*kind.ok_or_else(malformed)?, block.kind) {
            ("text_delta" | "thinking_delta" | "input_json_delta" | "signature_delta", _)
                if said.is_none() =>
            {
                return Err(malformed());
            }
            ("text_delta", Kind::Text) => text_event(text_of(data, said)?, events),
            ("thinking_delta", Kind::Thinking) => {
                let text = text_of(data, said)?;
                if !text.is_empty() {
                    events.push(Event::Reasoning { choice: 0, text, signature: None });
                }
            }
            ("signature_delta", Kind::Thinking) => {
                let signature = Some(text_of(data, said)?).filter(|seal| !seal.is_empty());
                if signature.is_some() {
                    events.push(Event::Reasoning { choice: 0, text: Text::default(), signature });
                }
            }
            ("input_json_delta", Kind::Tool(tool)) => {
                let fragment = text_of(data, said)?;
                if !fragment.is_empty() {
                    self.inputs -= block.input.take().map_or(0, |input| input.len());
                    events.push(Event::ToolArguments { choice: 0, tool, fragment });
                }
            }
            (
                "text_delta" | "thinking_delta" | "input_json_delta",
                Kind::Text | Kind::Thinking | Kind::Tool(_),
            ) => {
                return Err(malformed());
            }
            _ => {}
        }
        Ok(())
    }

    fn block_stop(&mut self, seen: &Seen<'_>, events: &mut Vec<Event>) -> Result<(), Fault> {
        let block = seen.index.and_then(|index| self.blocks.get_mut(index)).filter(|block| block.open);
        let block = block.ok_or_else(malformed)?;
        block.open = false;
        if let (Kind::Tool(tool), Some(input)) = (block.kind, block.input.take()) {
            self.inputs -= input.len();
            events.push(Event::ToolArguments { choice: 0, tool, fragment: input_text(&input)? });
        }
        Ok(())
    }

    fn message_delta(&mut self, data: &Bytes, seen: &Seen<'_>, events: &mut Vec<Event>) -> Result<(), Fault> {
        self.count_usage(seen.usage, Count::add, events);
        let delta = seen.delta.filter(|delta| scan::is_object(delta)).ok_or_else(malformed)?;
        events.extend(finish(data, delta)?);
        Ok(())
    }

    fn count_usage(&mut self, usage: Option<&[u8]>, read: fn(&mut Count, &[u8]), events: &mut Vec<Event>) {
        if let Some(usage) = usage.filter(|usage| scan::is_object(usage)) {
            read(&mut self.count, usage);
            events.extend(self.count.stated().map(Event::Usage));
        }
    }
}

impl super::Decoder for Decoder {
    fn push(&mut self, bytes: Bytes, events: &mut Vec<Event>) -> Result<(), Fault> {
        let Some(bytes) = self.opening.push(bytes, super::MAX_EVENT)? else { return Ok(()) };
        self.sse.push(bytes);
        while let Some(event) = self.sse.next() {
            let event = event.map_err(|sse::TooLong| malformed())?;
            if let Some(comment) = &event.comment {
                events.push(figures::comment(comment).map_or(Event::Ping, Event::Energy));
            }
            self.take(&event.data, events)?;
        }
        Ok(())
    }

    fn end(&mut self, events: &mut Vec<Event>) -> Result<(), Fault> {
        if let Some(object) = self.opening.take_object() {
            return super::whole(Dialect::Messages, object, "", events).map(drop).map_err(cut);
        }
        let Some(event) = self.sse.end() else { return Ok(()) };
        let comment = event.comment.as_deref().and_then(figures::comment);
        events.extend(comment.map(Event::Energy));
        self.take(&event.data, events).map_err(cut)
    }

    fn kept(&self) -> usize {
        self.opening.kept() + self.sse.kept() + self.inputs
    }
}

/// Known members of an event's data. The last one of a repeated name counts, as in client libraries.
#[derive(Default)]
pub(crate) struct Seen<'a> {
    /// Member `type`, empty if absent.
    pub(crate) kind: Cow<'a, str>,
    pub(crate) index: Option<usize>,
    pub(crate) delta: Option<&'a [u8]>,
    pub(crate) block: Option<&'a [u8]>,
    pub(crate) message: Option<&'a [u8]>,
    usage: Option<&'a [u8]>,
    measured: Option<Measured>,
    /// True if the data is one complete object.
    pub(crate) whole: bool,
}

impl<'a> Seen<'a> {
    pub(crate) fn read(data: &'a [u8]) -> Self {
        let mut seen = Self::default();
        let mut members = json::members(data);
        while let Some((key, value)) = members.next_pair() {
            let Some(key) = json::unescape(key) else { break };
            match &*key {
                "type" => seen.kind = scan::string(value).unwrap_or_default(),
                "index" => seen.index = scan::number(value).and_then(|index| usize::try_from(index).ok()),
                "delta" => seen.delta = Some(value),
                "content_block" => seen.block = Some(value),
                "message" => seen.message = Some(value),
                "usage" => seen.usage = Some(value),
                "energy" => seen.measured = figures::energy(value).or(seen.measured),
                "impact" => seen.measured = figures::impact(value).or(seen.measured),
                _ => {}
            }
        }
        seen.whole = members.is_whole();
        seen
    }
}

fn malformed() -> Fault {
    Fault::new(FaultKind::Malformed)
}

/// Returns a string of the event as text that shares its bytes; an absent string is empty.
fn text_of(data: &Bytes, value: Option<&[u8]>) -> Result<Text, Fault> {
    let Some(value) = value.filter(|value| !scan::is_null(value)) else {
        return Ok(Text::default());
    };
    let inside = scan::inner(value).ok_or_else(malformed)?;
    let shared = within(data, inside).unwrap_or_else(|| Bytes::copy_from_slice(inside));
    Text::from_json(shared).ok_or_else(malformed)
}

/// Returns the type of a content block.
fn kind_of(block: &[u8]) -> Result<Cow<'_, str>, Fault> {
    scan::member(block, "type").and_then(scan::string).ok_or_else(malformed)
}

fn text_event(text: Text, events: &mut Vec<Event>) {
    if !text.is_empty() {
        events.push(Event::Text { choice: 0, text, logprobs: None });
    }
}

/// Returns the id and the name of a tool call, both not empty and of limited length.
fn named(data: &Bytes, block: &[u8]) -> Result<(Text, Text), Fault> {
    let sound = |text: &Text| !text.is_empty() && text.escaped().len() <= super::MAX_NAME;
    let id = text_of(data, scan::member(block, "id"))?;
    let name = text_of(data, scan::member(block, "name"))?;
    if name.escaped().len() > super::MAX_NAME {
        return Err(Fault::model_output());
    }
    if sound(&id) && sound(&name) { Ok((id, name)) } else { Err(malformed()) }
}

/// Returns the input object of a tool call as escaped text.
fn input_text(input: &[u8]) -> Result<Text, Fault> {
    let mut escaped = Vec::with_capacity(input.len() + 16);
    compact_into(input, &mut escaped);
    Text::from_json(Bytes::from(escaped)).ok_or_else(malformed)
}

/// Parses a `stop_reason`, including the spellings of engines: a truncated answer must not look complete.
///
/// # Errors
/// Returns `InBand` if the engine reports that it aborted.
pub(crate) fn ending(reason: &str) -> Result<Finish, Fault> {
    Ok(match reason {
        "max_tokens" | "length" | "max_length" => Finish::Length,
        "model_context_window_exceeded" | "model_length" => Finish::Window,
        "tool_use" | "tool_calls" | "tool_call" | "function_call" => Finish::ToolCalls,
        "refusal" | "content_filter" | "safety" | "sensitive" => Finish::ContentFilter,
        "error" | "abort" | "aborted" | "cancelled" | "network_error" => {
            return Err(Fault::new(FaultKind::InBand));
        }
        // end_turn, stop_sequence, pause_turn, stop, eos, and unknown values.
        _ => Finish::Stop,
    })
}

/// Returns the finish event of a `stop_reason`; `None` if it is null.
fn finish(data: &Bytes, of: &[u8]) -> Result<Option<Event>, Fault> {
    let Some(reason) = scan::member(of, "stop_reason") else { return Ok(None) };
    let reason = scan::string(reason).ok_or_else(malformed)?;
    let reason = ending(&reason)?;
    let stop = text_of(data, scan::member(of, "stop_sequence"))?;
    let stop_sequence = Some(stop).filter(|stop| !stop.is_empty());
    Ok(Some(Event::Finish { choice: 0, reason, stop_sequence }))
}
