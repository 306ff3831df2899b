//! Record of an answer's delivered text, and its comparison with the answer of another provider.

mod prefix_matcher;

use crate::event::{AnswerEvent, EscapedText};
use penstock_core::{EarlierAnswerMessage, ThinkingDisplay};
use penstock_json_scan::json;
pub(crate) use prefix_matcher::PrefixMatcher;
use prefix_matcher::{ChoiceMatcher, ExpectedSegment};

/// Maximum bytes of the record: its text, with the escapes, and [`SEGMENT_BYTES`] for each segment. A longer answer
/// cannot be rescued.
const MAX_BYTES: usize = 256 << 10;
/// Minimum growth of a buffer, in bytes.
const MIN_GROWTH: usize = 256;
/// Bytes of memory that a segment occupies in addition to its text.
const SEGMENT_BYTES: usize = size_of::<TextSegment>() + MIN_GROWTH;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Reasoning,
    Text,
    Refusal,
    Tool(u32),
}

impl TextKind {
    /// Returns true for the text of a message.
    const fn is_message(self) -> bool {
        matches!(self, Self::Text | Self::Refusal)
    }
}

/// Segment of text of one kind. It is unescaped only if needed.
#[derive(Debug)]
struct TextSegment {
    kind: TextKind,
    /// Name of the function, for a tool call.
    name: Option<EscapedText>,
    /// True for the first text of a message that directly follows the text of another message.
    starts_message: bool,
    /// True if the provider's signature of the reasoning followed the last text of the segment.
    is_signed: bool,
    escaped: Vec<u8>,
}

/// Reasoning without visible text at the end of the delivered part of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrailingReasoning {
    /// The part ends with other content, or has none.
    #[default]
    Absent,
    /// Reasoning whose signature the client does not have.
    Unsigned,
    /// Reasoning with its signature, which ends it.
    Signed,
}

/// Record of the text that the client has received of each choice.
#[derive(Debug)]
pub(crate) struct DeliveredText {
    /// Part of the reasoning that the client sees. Reasoning is recorded only if its text is shown.
    reasoning: ThinkingDisplay,
    /// Reasoning with which the answer ends so far, if its text is not shown. Only answers of one choice have
    /// reasoning without text.
    trailing_reasoning: TrailingReasoning,
    size: usize,
    choices: Vec<Vec<TextSegment>>,
    /// True if the next text is the first one of a message behind another message.
    starts_message: bool,
}

/// Appends text. The buffer grows by a quarter instead of doubling, because an answer may stay in memory for minutes.
fn append(escaped: &mut Vec<u8>, text: &[u8]) {
    let spare = escaped.capacity() - escaped.len();
    if spare < text.len() {
        escaped.reserve_exact(text.len().max(escaped.len() / 4).max(MIN_GROWTH));
    }
    escaped.extend_from_slice(text);
}

impl DeliveredText {
    /// Creates an empty record of `n` choices. `reasoning` is the part of the reasoning that the client sees.
    pub(crate) fn new(n: usize, reasoning: ThinkingDisplay) -> Self {
        Self {
            reasoning,
            trailing_reasoning: TrailingReasoning::Absent,
            size: 0,
            choices: (0..n).map(|_| Vec::new()).collect(),
            starts_message: false,
        }
    }

    /// Records the text of an event that was delivered to the client.
    pub(crate) fn record_event(&mut self, event: &AnswerEvent) {
        if let AnswerEvent::MessageStart { is_next, .. } = event {
            self.starts_message = *is_next;
        }
        let Some((choice, kind, text)) = event_text(event) else { return };
        self.trailing_reasoning = match kind {
            TextKind::Reasoning if event.signature().is_some() => TrailingReasoning::Signed,
            TextKind::Reasoning => TrailingReasoning::Unsigned,
            // An event with only log probabilities has an empty text.
            TextKind::Text | TextKind::Refusal if text.is_empty() => self.trailing_reasoning,
            _ => TrailingReasoning::Absent,
        };
        let is_hidden = kind == TextKind::Reasoning && self.reasoning != ThinkingDisplay::Shown;
        if self.size > MAX_BYTES || is_hidden {
            return;
        }
        let Some(stretches) = self.choices.get_mut(choice as usize) else { return };
        let name = match event {
            AnswerEvent::ToolCallStart { name, .. } => Some(name),
            _ => None,
        };
        let follows_message = stretches.last().is_some_and(|last| last.kind.is_message());
        let starts_message = kind.is_message() && std::mem::take(&mut self.starts_message) && follows_message;
        let is_signed = event.signature().is_some();
        self.size += text.len();
        match stretches.last_mut() {
            Some(last) if last.kind == kind && name.is_none() && !starts_message => {
                append(&mut last.escaped, text);
                last.is_signed = is_signed || (last.is_signed && text.is_empty());
            }
            _ => {
                self.size += SEGMENT_BYTES + name.map_or(0, |name| name.escaped().len());
                // The name is copied, because it shares the memory of the whole event.
                let name = name.map(|name| EscapedText::new(&name.decoded()));
                let escaped = text.to_vec();
                stretches.push(TextSegment { kind, name, starts_message, is_signed, escaped });
            }
        }
        if self.size > MAX_BYTES {
            self.choices.iter_mut().for_each(|stretches| *stretches = Vec::new());
        }
    }

    /// Returns true if the record contains everything that was delivered.
    pub(crate) const fn is_fully_recorded(&self) -> bool {
        self.size <= MAX_BYTES
    }

    /// Returns the text if the record is complete and has one choice, with text and nothing else; `None` otherwise,
    /// also if there is no text. The texts of several messages are joined with a blank line, like the messages of
    /// earlier answers.
    pub(crate) fn plain_text(&self) -> Option<String> {
        let [stretches] = self.choices.as_slice() else { return None };
        let is_text = stretches.iter().all(|segment| segment.kind == TextKind::Text);
        if stretches.is_empty() || !is_text || !self.is_fully_recorded() {
            return None;
        }
        // Adjacent segments of text are separate messages.
        let texts: Vec<&[u8]> = stretches.iter().map(|segment| &*segment.escaped).collect();
        Some(json::unescape(&texts.join(EarlierAnswerMessage::SEPARATOR.as_bytes()))?.into_owned())
    }

    /// Returns true if the record has adjacent messages. The answer of a provider whose dialect has no messages cannot
    /// match such a record.
    pub(crate) fn has_adjacent_messages(&self) -> bool {
        self.choices.iter().flatten().any(|segment| segment.starts_message)
    }

    /// Creates a matcher that compares the answer of another provider with this record; `None` if the record is
    /// incomplete.
    pub(crate) fn prefix_matcher(&self) -> Option<PrefixMatcher> {
        if !self.is_fully_recorded() {
            return None;
        }
        let mut choices = Vec::with_capacity(self.choices.len());
        for stretches in &self.choices {
            let mut expected = Vec::with_capacity(stretches.len());
            for stretch in stretches {
                expected.push(ExpectedSegment {
                    kind: stretch.kind,
                    name: stretch.name.clone(),
                    starts_message: stretch.starts_message,
                    is_signed: stretch.is_signed,
                    text: json::unescape(&stretch.escaped)?.into_owned(),
                });
            }
            choices.push(ChoiceMatcher::new(expected));
        }
        Some(PrefixMatcher::new(self.reasoning, self.trailing_reasoning, choices))
    }
}

fn event_text(event: &AnswerEvent) -> Option<(u32, TextKind, &[u8])> {
    Some(match event {
        AnswerEvent::Reasoning { choice, text, .. } => (*choice, TextKind::Reasoning, text.escaped()),
        AnswerEvent::Text { choice, text, .. } => (*choice, TextKind::Text, text.escaped()),
        AnswerEvent::Refusal { choice, text } => (*choice, TextKind::Refusal, text.escaped()),
        AnswerEvent::ToolCallStart { choice, tool, .. } => (*choice, TextKind::Tool(*tool), &[]),
        AnswerEvent::ToolCallArguments { choice, tool, fragment } => {
            (*choice, TextKind::Tool(*tool), fragment.escaped())
        }
        _ => return None,
    })
}

/// Returns the event with this text instead of its own, and without log probabilities.
pub(crate) fn with_text(event: &AnswerEvent, text: &str) -> AnswerEvent {
    let new = EscapedText::new(text);
    let mut event = event.clone();
    match &mut event {
        AnswerEvent::Reasoning { text, .. } | AnswerEvent::Refusal { text, .. } => *text = new,
        AnswerEvent::Text { text, logprobs, .. } => {
            *text = new;
            *logprobs = None;
        }
        AnswerEvent::ToolCallArguments { fragment, .. } => *fragment = new,
        _ => {}
    }
    event
}

#[cfg(test)]
#[path = "delivered_tests.rs"]
mod tests;
