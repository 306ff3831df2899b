//! Parser of stream chunks and of buffered bodies: one parser, because engines mix the two formats.

use super::tools::{Calls, Fragment, Place};
use super::voice::{Half, Voice};
use super::words;
use crate::classify;
use crate::event::{Event, Text};
use crate::scan::{self, Cursor};
use bytes::Bytes;
use penstock_contract::{Fault, FaultKind, Finish, ReasoningName};
use penstock_wire::{figures, json};
use std::convert::Infallible;
use std::ops::Range;

/// Maximum number of choices, above the limit of a request.
const MAX_CHOICES: u64 = 16;

/// Range of the only text of a chunk, without its quotes.
pub(super) struct Only(pub(super) Range<usize>);

/// Parser of consecutive chunks.
pub(super) struct Chunks {
    seed: String,
    whole: bool,
    choices: Vec<Choice>,
    reasoning: Option<ReasoningName>,
}

#[derive(Default)]
struct Choice {
    calls: Calls,
    half: Half,
    finished: bool,
}

/// Members of an element of `choices`, with raw values.
#[derive(Default)]
struct Parts<'a> {
    index: Option<&'a [u8]>,
    said: Option<Said<'a>>,
    finish: Option<&'a [u8]>,
    stop: Option<&'a [u8]>,
    logprobs: Option<&'a [u8]>,
    text: Option<&'a [u8]>,
    usage: Option<&'a [u8]>,
}

/// Members of a `delta` or `message`, with raw values.
#[derive(Clone, Copy, Default)]
struct Said<'a> {
    content: Option<&'a [u8]>,
    reasoning: Option<&'a [u8]>,
    reasoning_name: Option<ReasoningName>,
    refusal: Option<&'a [u8]>,
    tool_calls: Option<&'a [u8]>,
    function_call: Option<&'a [u8]>,
}

fn malformed() -> Fault {
    Fault::new(FaultKind::Malformed)
}

impl Chunks {
    /// Creates a parser of stream chunks, or of one buffered body.
    pub(super) fn new(seed: &str, whole: bool) -> Self {
        Self { seed: seed.to_owned(), whole, choices: Vec::new(), reasoning: None }
    }

    /// Appends the events of a chunk. Returns the range of its text if it contains nothing else.
    pub(super) fn take(&mut self, chunk: &Bytes, events: &mut Vec<Event>) -> Result<Option<Only>, Fault> {
        std::str::from_utf8(chunk).map_err(|_| malformed())?;
        let mut choices = Vec::with_capacity(1);
        let (mut usage, mut measured, mut failed) = (None, None, false);
        let mut cursor = Cursor::new(chunk);
        let Ok(()) = cursor.members::<Infallible>(|key, value| {
            match key {
                "choices" if words::is_nothing(value) => choices.clear(),
                "choices" => {
                    choices.clear();
                    return value.elements(|_, choice| {
                        choices.push(Parts::read(choice));
                        Ok(())
                    });
                }
                "error" => failed |= value.value() != b"null",
                "object" => failed |= json::is_string(value.value(), "error"),
                "usage" => usage = figures::usage(value.value()).or(usage),
                "x_groq" => usage = usage.or_else(|| words::vendor_usage(value.value())),
                "energy" => measured = figures::energy(value.value()).or(measured),
                "impact" => measured = figures::impact(value.value()).or(measured),
                _ => {}
            }
            Ok(())
        });
        if failed {
            return Err(classify::in_band(chunk));
        }
        if !cursor.is_whole() {
            return Err(malformed());
        }
        let (mut only, count) = (None, choices.len());
        for (position, parts) in choices.iter().enumerate() {
            let parts = parts.as_ref().ok_or_else(malformed)?;
            usage = usage.or_else(|| parts.usage.and_then(figures::usage));
            self.reasoning = parts.said.and_then(|said| said.reasoning_name).or(self.reasoning);
            only = self.choice(chunk, parts, position as u64, events)?;
        }
        events.extend(usage.map(Event::Usage));
        events.extend(measured.map(Event::Energy));
        let alone = count == 1 && usage.is_none() && measured.is_none();
        Ok(only.filter(|_| alone))
    }

    /// Returns the name of the reasoning member.
    pub(super) const fn reasoning_name(&self) -> Option<ReasoningName> {
        self.reasoning
    }

    /// Returns the seed of generated tool call ids.
    pub(super) fn seed(&self) -> &str {
        &self.seed
    }

    /// Returns the bytes of stored arguments.
    pub(super) fn kept(&self) -> usize {
        self.choices.iter().map(|choice| choice.calls.kept()).sum()
    }

    /// Records arguments from a chunk on the fast path.
    pub(super) fn more(&mut self, choice: u32, tool: u32, fragment: &Text) {
        if let Some(choice) = self.choices.get_mut(choice as usize) {
            choice.calls.more(tool, fragment);
        }
    }

    fn choice(
        &mut self,
        chunk: &Bytes,
        parts: &Parts<'_>,
        position: u64,
        events: &mut Vec<Event>,
    ) -> Result<Option<Only>, Fault> {
        let number = parts.index.map_or(Some(position), scan::number).ok_or_else(malformed)?;
        if number >= MAX_CHOICES {
            return Err(malformed());
        }
        let at = usize::try_from(number).map_err(|_| malformed())?;
        let number = u32::try_from(number).map_err(|_| malformed())?;
        if self.choices.len() <= at {
            self.choices.resize_with(at + 1, Choice::default);
        }
        let choice = self.choices.get_mut(at).ok_or_else(malformed)?;
        // In a buffered answer a repeated index can only be that of another choice.
        if choice.finished && self.whole {
            return Ok(None);
        }
        // A buffered answer must have a message, even an empty one.
        if self.whole && parts.said.is_none() && parts.text.is_none() {
            return Err(malformed());
        }
        let said = parts.said.unwrap_or_default();
        let said = Said { content: said.content.or(parts.text), ..said };
        let seen = Seen { chunk, number, seed: &self.seed, whole: self.whole };
        choice.say(&said, words::object(parts.logprobs)?, seen, events)?;
        let called = choice.call(&said, seen, events)?;
        if let Some(reason) = words::reason(parts.finish, self.whole)? {
            choice.finish(reason, parts.stop, seen, events)?;
        }
        // While a surrogate is pending, the next text depends on it.
        let clear = choice.half.is_none();
        let text = said.content.filter(|_| said.reasoning.is_none()).or(said.reasoning);
        let text = called.map_or(text, |arguments| arguments.filter(|_| text.is_none()));
        let only = text.and_then(string).filter(|text| clear && !text.is_empty());
        Ok(only.and_then(|text| place_of(chunk, text)))
    }
}

/// Context of the events of a choice.
#[derive(Clone, Copy)]
struct Seen<'a> {
    chunk: &'a Bytes,
    number: u32,
    seed: &'a str,
    whole: bool,
}

impl Choice {
    /// Emits the reasoning, the content and the refusal.
    fn say(
        &mut self,
        said: &Said<'_>,
        logprobs: Option<&[u8]>,
        seen: Seen<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        let mut speaker = Speaker { chunk: seen.chunk, number: seen.number, half: &mut self.half, events };
        speaker.reasoning(said.reasoning)?;
        // A token may have no text of its own but a log probability.
        let silent = logprobs.is_some().then_some(&b"\"\""[..]);
        speaker.content(said.content.or(silent), logprobs)?;
        speaker.string(Voice::Refusal, said.refusal, None)
    }

    /// Reads the tool calls, if there are any. The inner value is the arguments of a fragment that only its frame
    /// assigns to a call.
    fn call<'a>(
        &mut self,
        said: &Said<'a>,
        seen: Seen<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Option<Option<&'a [u8]>>, Fault> {
        let mut place =
            Place { source: seen.chunk, choice: seen.number, seed: seen.seed, half: &mut self.half, events };
        let calls = said.tool_calls.unwrap_or(b"[]");
        if !scan::is_array(calls) {
            return Err(malformed());
        }
        let (mut called, mut named) = (None, Vec::new());
        for element in scan::elements(calls) {
            let mut fragment = Fragment::read(element).ok_or_else(malformed)?;
            // In a buffered answer each element is a call; in one list so is each element with a name that nothing else
            // distinguishes from the previous one.
            let unmarked = fragment.id.is_none()
                && fragment.name.is_some()
                && fragment.index.is_none_or(|index| named.contains(&index));
            fragment.alone = seen.whole || (called.is_some() && unmarked);
            let fresh = fragment.index.filter(|index| fragment.name.is_some() && !named.contains(index));
            named.extend(fresh);
            called = Some(fragment.arguments.filter(|_| called.is_none() && fragment.name.is_none()));
            self.calls.take(&fragment, &mut place)?;
        }
        if let Some(function) = said.function_call.filter(|_| called.is_none()) {
            let mut fragment = Fragment::default();
            fragment.function(function).ok_or_else(malformed)?;
            self.calls.take(&fragment, &mut place)?;
        }
        Ok(called)
    }

    fn finish(
        &mut self,
        reason: Finish,
        stop: Option<&[u8]>,
        seen: Seen<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Fault> {
        self.calls.finish()?;
        self.finished = true;
        let stop = stop.and_then(string).and_then(|stop| Text::from_json(seen.chunk.slice_ref(stop)));
        let stop_sequence = stop.filter(|stop| !stop.is_empty());
        events.push(Event::Finish { choice: seen.number, reason, stop_sequence });
        Ok(())
    }
}

/// Returns the range of `part` in `chunk`.
fn place_of(chunk: &Bytes, part: &[u8]) -> Option<Only> {
    let start = (part.as_ptr() as usize).checked_sub(chunk.as_ptr() as usize)?;
    Some(Only(start..start + part.len()))
}

/// Returns the body of a string.
fn string(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

impl<'a> Parts<'a> {
    /// Parses a choice; returns `None` if it is no object, or its message is no object.
    fn read(element: &mut Cursor<'a>) -> Option<Self> {
        if element.first() != Some(b'{') {
            return None;
        }
        let mut parts = Self::default();
        let (mut delta, mut message, mut odd) = (None, None, false);
        let Ok(()) = element.members::<Infallible>(|key, value| {
            match key {
                "delta" if value.first() == Some(b'{') => delta = Some(Said::read(value)),
                "message" if value.first() == Some(b'{') => message = Some(Said::read(value)),
                "delta" | "message" => odd |= !scan::is_null(value.value()),
                _ => parts.member(key, value.value()),
            }
            Ok(())
        });
        parts.said = delta.or(message);
        (!odd).then_some(parts)
    }

    fn member(&mut self, key: &str, value: &'a [u8]) {
        match key {
            _ if value == b"null" => {}
            "index" => self.index = Some(value),
            "finish_reason" => self.finish = Some(value),
            "stop_reason" | "matched_stop" => self.stop = Some(value),
            "logprobs" => self.logprobs = Some(value),
            "text" => self.text = Some(value),
            "usage" => self.usage = Some(value),
            _ => {}
        }
    }
}

impl<'a> Said<'a> {
    fn read(message: &mut Cursor<'a>) -> Self {
        let mut said = Self::default();
        let Ok(()) = message.members::<Infallible>(|key, value| {
            let value = value.value();
            match key {
                _ if value == b"null" || value == b"\"\"" => {}
                "content" => said.content = Some(value),
                // An engine that sends both names gives both the same text.
                "reasoning_content" | "reasoning" => {
                    said.reasoning = said.reasoning.or(Some(value));
                    // If an engine sends both names, it accepts the older one.
                    let short = key == "reasoning" && said.reasoning_name.is_none();
                    let name = if short { ReasoningName::Short } else { ReasoningName::Content };
                    said.reasoning_name = Some(name);
                }
                "refusal" => said.refusal = Some(value),
                "tool_calls" => said.tool_calls = Some(value),
                "function_call" => said.function_call = Some(value),
                _ => {}
            }
            Ok(())
        });
        said
    }
}

/// Emitter of the text events of one choice.
struct Speaker<'a> {
    chunk: &'a Bytes,
    number: u32,
    half: &'a mut Half,
    events: &'a mut Vec<Event>,
}

impl Speaker<'_> {
    fn reasoning(&mut self, value: Option<&[u8]>) -> Result<(), Fault> {
        self.string(Voice::Reasoning, value, None)
    }

    /// Emits a string, or a list of parts with text and, for some engines, thinking.
    fn content(&mut self, value: Option<&[u8]>, logprobs: Option<&[u8]>) -> Result<(), Fault> {
        let Some(list) = value.filter(|value| value.first() == Some(&b'[')) else {
            return self.string(Voice::Answer, value, logprobs);
        };
        scan::elements(list).try_for_each(|part| self.part(part, Voice::Answer))
    }

    fn part(&mut self, part: &[u8], voice: Voice) -> Result<(), Fault> {
        if !scan::is_object(part) {
            return Err(malformed());
        }
        let mut members = json::members(part);
        while let Some((key, value)) = members.next_named() {
            match &*key {
                "text" => self.string(voice, Some(value), None)?,
                "thinking" if value.first() == Some(&b'[') => {
                    scan::elements(value).try_for_each(|part| self.part(part, Voice::Reasoning))?;
                }
                "thinking" => self.string(Voice::Reasoning, Some(value), None)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn string(&mut self, voice: Voice, value: Option<&[u8]>, logprobs: Option<&[u8]>) -> Result<(), Fault> {
        let value = value.filter(|value| !scan::is_null(value));
        let text = match value.map(string) {
            None => return Ok(()),
            Some(None) => return Err(malformed()),
            Some(Some([])) => Text::default(),
            Some(Some(inside)) => self.half.join(voice, self.chunk, inside).ok_or_else(malformed)?,
        };
        let choice = self.number;
        // A token may be half a character; client libraries reject a lone surrogate.
        let logprobs = logprobs.map(|logprobs| match json::mend_surrogates(logprobs) {
            None => self.chunk.slice_ref(logprobs),
            Some(mended) => Bytes::from(mended),
        });
        if text.is_empty() && logprobs.as_deref().is_none_or(words::is_hollow) {
            return Ok(());
        }
        self.events.push(match voice {
            Voice::Reasoning => Event::Reasoning { choice, text, signature: None },
            Voice::Refusal => Event::Refusal { choice, text },
            Voice::Answer | Voice::Arguments(_) => Event::Text { choice, text, logprobs },
        });
        Ok(())
    }
}
