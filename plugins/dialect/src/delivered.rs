//! Record of an answer's delivered text, and its comparison with the answer of another provider.

use crate::event::{AnswerEvent, EscapedText};
use penstock_core::EarlierAnswerMessage;
use penstock_json_scan::json;

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

/// Record of the text that the client has received of each choice.
#[derive(Debug)]
pub(crate) struct DeliveredText {
    includes_reasoning: bool,
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
    /// Creates an empty record of `n` choices. `includes_reasoning` is false if the client does not see reasoning,
    /// which is then not recorded.
    pub(crate) fn new(n: usize, includes_reasoning: bool) -> Self {
        let choices = (0..n).map(|_| Vec::new()).collect();
        Self { includes_reasoning, size: 0, choices, starts_message: false }
    }

    /// Records the text of an event that was delivered to the client.
    pub(crate) fn record_event(&mut self, event: &AnswerEvent) {
        if let AnswerEvent::MessageStart { is_next, .. } = event {
            self.starts_message = *is_next;
        }
        let Some((choice, kind, text)) = event_text(event) else { return };
        if self.size > MAX_BYTES || (kind == TextKind::Reasoning && !self.includes_reasoning) {
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
        Some(PrefixMatcher { includes_reasoning: self.includes_reasoning, choices })
    }
}

#[derive(Debug)]
struct ExpectedSegment {
    kind: TextKind,
    name: Option<EscapedText>,
    starts_message: bool,
    is_signed: bool,
    text: String,
}

#[derive(Debug)]
struct ChoiceMatcher {
    expected: Vec<ExpectedSegment>,
    /// Index of the segment under comparison, `None` before the first; `offset` is the number of its bytes that
    /// matched.
    current_segment: Option<usize>,
    offset: usize,
    /// True if all of the recorded text has been matched, so that later text is new to the client.
    is_past_prefix: bool,
    /// True if the next text of the second answer is the first one of a message behind another message.
    starts_message: bool,
}

/// Matcher that removes the delivered text from the events of a second answer, which must begin with that text.
#[derive(Debug)]
pub(crate) struct PrefixMatcher {
    includes_reasoning: bool,
    choices: Vec<ChoiceMatcher>,
}

/// Error of an answer that differs from the delivered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DivergenceError;

impl PrefixMatcher {
    /// Returns the part of the event that is new to the client; `None` if the client has all of it.
    ///
    /// # Errors
    /// Returns an error if the answer differs from the delivered text, or finishes before the end of that text.
    pub(crate) fn match_event(&mut self, event: AnswerEvent) -> Result<Option<AnswerEvent>, DivergenceError> {
        if let (AnswerEvent::MessageStart { is_next, .. }, Some(matcher)) = (&event, self.choices.first_mut())
        {
            // The start of a message is new if all delivered text has been matched. Earlier starts are compared with
            // those of the delivered messages when their text arrives.
            let is_new = matcher.is_fully_matched();
            matcher.starts_message = *is_next && !is_new;
            return Ok(is_new.then_some(event));
        }
        let Some(matcher) = event.choice().and_then(|choice| self.choices.get_mut(choice as usize)) else {
            return Ok(Some(event));
        };
        let Some((_, kind, _)) = event_text(&event) else {
            // If the second answer finishes before the recorded text ends, it is a different answer.
            return if matcher.is_fully_matched() { Ok(Some(event)) } else { Err(DivergenceError) };
        };
        if kind == TextKind::Reasoning && !self.includes_reasoning {
            return Ok(Some(event));
        }
        if let AnswerEvent::ToolCallStart { name, .. } = &event {
            let known = matcher.begin_segment(kind, Some(name), false)?;
            return Ok((!known).then_some(event));
        }
        let text = match &event {
            AnswerEvent::Reasoning { text, .. }
            | AnswerEvent::Text { text, .. }
            | AnswerEvent::Refusal { text, .. } => text,
            AnswerEvent::ToolCallArguments { fragment, .. } => fragment,
            _ => return Ok(Some(event)),
        };
        let rest = matcher.match_text(kind, &text.decoded())?;
        Ok(match rest {
            UnmatchedText::All => Some(event),
            UnmatchedText::None if event.signature().is_some() && matcher.needs_signature() => {
                Some(with_text(&event, ""))
            }
            UnmatchedText::None => None,
            UnmatchedText::Some(rest) => Some(with_text(&event, &rest)),
        })
    }
}

enum UnmatchedText {
    All,
    None,
    Some(String),
}

impl ChoiceMatcher {
    const fn new(expected: Vec<ExpectedSegment>) -> Self {
        Self { expected, current_segment: None, offset: 0, is_past_prefix: false, starts_message: false }
    }

    fn is_fully_matched(&self) -> bool {
        self.is_past_prefix || (self.unmatched().is_empty() && self.next_segment() == self.expected.len())
    }

    /// Returns the unmatched part of the current segment.
    fn unmatched(&self) -> &str {
        self.current().and_then(|now| now.text.get(self.offset..)).unwrap_or_default()
    }

    fn next_segment(&self) -> usize {
        self.current_segment.map_or(0, |now| now + 1)
    }

    fn current(&self) -> Option<&ExpectedSegment> {
        self.current_segment.and_then(|now| self.expected.get(now))
    }

    /// Returns true if all of the recorded text has been matched, and the client still needs the signature of the
    /// reasoning with which that text ends. The signature then counts as delivered.
    fn needs_signature(&mut self) -> bool {
        let is_at_end = self.is_fully_matched();
        let last = self.current_segment.and_then(|now| self.expected.get_mut(now));
        is_at_end && last.is_some_and(|last| !std::mem::replace(&mut last.is_signed, true))
    }

    /// Begins a segment. Returns true if the recorded text has it too, and false if it is new to the client.
    fn begin_segment(
        &mut self,
        kind: TextKind,
        name: Option<&EscapedText>,
        starts_message: bool,
    ) -> Result<bool, DivergenceError> {
        if self.is_past_prefix {
            return Ok(false);
        }
        if !self.unmatched().is_empty() {
            return Err(DivergenceError);
        }
        let next = self.next_segment();
        match self.expected.get(next) {
            None => {
                self.is_past_prefix = true;
                Ok(false)
            }
            Some(expected)
                if expected.kind == kind
                    && expected.name.as_ref() == name
                    && expected.starts_message == starts_message =>
            {
                self.current_segment = Some(next);
                self.offset = 0;
                Ok(true)
            }
            Some(_) => Err(DivergenceError),
        }
    }

    fn match_text(&mut self, kind: TextKind, text: &str) -> Result<UnmatchedText, DivergenceError> {
        let follows_message = self.current().is_some_and(|now| now.kind.is_message());
        let starts_message = kind.is_message() && std::mem::take(&mut self.starts_message) && follows_message;
        let goes_on = !starts_message && self.current().is_some_and(|now| now.kind == kind);
        if self.is_past_prefix || !(goes_on || self.begin_segment(kind, None, starts_message)?) {
            return Ok(UnmatchedText::All);
        }
        let due = self.unmatched();
        if due.starts_with(text) {
            self.offset += text.len();
            return Ok(UnmatchedText::None);
        }
        let more = text.strip_prefix(due).ok_or(DivergenceError)?;
        if self.next_segment() < self.expected.len() {
            // The second answer continues a text at a position where the first answer began another segment.
            return Err(DivergenceError);
        }
        let rest = if due.is_empty() { UnmatchedText::All } else { UnmatchedText::Some(more.to_owned()) };
        self.is_past_prefix = true;
        Ok(rest)
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
