//! Comparison of the answer of a second provider with the delivered text, which the answer repeats.

use super::{TextKind, TrailingReasoning, event_text, with_text};
use crate::event::{AnswerEvent, EscapedText};
use penstock_core::ThinkingDisplay;

#[derive(Debug)]
pub(super) struct ExpectedSegment {
    pub(super) kind: TextKind,
    pub(super) name: Option<EscapedText>,
    pub(super) starts_message: bool,
    pub(super) is_signed: bool,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct ChoiceMatcher {
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
    /// Part of the reasoning that the client sees.
    reasoning: ThinkingDisplay,
    trailing_reasoning: TrailingReasoning,
    choices: Vec<ChoiceMatcher>,
}

/// Error of an answer that differs from the delivered text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DivergenceError;

impl PrefixMatcher {
    /// Creates a matcher. `trailing_reasoning` is the reasoning with which the delivered part ends, if its text is not
    /// shown.
    pub(super) const fn new(
        reasoning: ThinkingDisplay,
        trailing_reasoning: TrailingReasoning,
        choices: Vec<ChoiceMatcher>,
    ) -> Self {
        Self { reasoning, trailing_reasoning, choices }
    }

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
        if kind == TextKind::Reasoning {
            match self.reasoning {
                ThinkingDisplay::Off => return Ok(Some(event)),
                ThinkingDisplay::Omitted => {
                    let is_new = matcher.accepts_omitted_reasoning(self.trailing_reasoning);
                    return Ok(is_new.then_some(event));
                }
                ThinkingDisplay::Shown => {}
            }
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
    pub(super) const fn new(expected: Vec<ExpectedSegment>) -> Self {
        Self { expected, current_segment: None, offset: 0, is_past_prefix: false, starts_message: false }
    }

    fn is_fully_matched(&self) -> bool {
        self.is_past_prefix || (self.unmatched().is_empty() && self.next_segment() == self.expected.len())
    }

    /// Returns true if reasoning without visible text is new to the client, or continues the reasoning that the client
    /// has incompletely. Earlier reasoning would be a repetition, or would divide the delivered text.
    fn accepts_omitted_reasoning(&self, trailing: TrailingReasoning) -> bool {
        self.is_past_prefix || (self.is_fully_matched() && trailing != TrailingReasoning::Signed)
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
