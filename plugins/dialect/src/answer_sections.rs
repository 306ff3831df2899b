//! Sections of a buffered answer: reasoning, messages and tool calls, in the order in which the model wrote them.

use crate::answer::AnswerChoice;
use crate::event::{EscapedText, MessagePhase};
use std::ops::Range;

/// Section of one choice of an answer, as ranges in the lists of fragments of that choice.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerSection {
    /// Reasoning up to its signature, or up to the next message or tool call.
    Reasoning {
        /// Range of the section's fragments in [`AnswerChoice::reasoning`].
        fragments: Range<usize>,
        /// Provider's signature; `None` if the section has none.
        signature: Option<EscapedText>,
    },
    /// Message of text and refusals.
    Message(MessageSection),
    /// Tool call, as its index in the tool calls of the choice.
    Call(usize),
}

/// Message in one choice of an answer, as ranges in the lists of fragments of that choice.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageSection {
    /// Phase of the message; `None` if the provider did not state one.
    pub phase: Option<MessagePhase>,
    /// Range of the message's fragments in [`AnswerChoice::text`].
    pub text: Range<usize>,
    /// Range of the message's fragments in [`AnswerChoice::refusal`].
    pub refusal: Range<usize>,
    /// Range of the message's objects in [`AnswerChoice::logprobs`].
    pub logprobs: Range<usize>,
}

impl AnswerChoice {
    /// Adds a fragment of reasoning.
    pub(crate) fn push_reasoning(&mut self, text: EscapedText, signature: Option<EscapedText>) {
        let at = self.reasoning.len();
        match self.sections.last_mut() {
            // A signature ends its section.
            Some(AnswerSection::Reasoning { fragments, signature: last @ None }) => {
                (fragments.end, *last) = (at + 1, signature);
            }
            _ if text.is_empty() && signature.is_none() => {}
            _ => self.sections.push(AnswerSection::Reasoning { fragments: at..at + 1, signature }),
        }
        self.reasoning.push(text);
    }

    /// Adds a fragment of text, with its log probabilities.
    pub(crate) fn push_text(&mut self, text: EscapedText, logprobs: Option<bytes::Bytes>) {
        let has_content = !text.is_empty() || logprobs.is_some();
        self.text.push(text);
        self.logprobs.extend(logprobs);
        if has_content {
            self.extend_message();
        }
    }

    /// Adds a fragment of a refusal.
    pub(crate) fn push_refusal(&mut self, text: EscapedText) {
        let has_content = !text.is_empty();
        self.refusal.push(text);
        if has_content {
            self.extend_message();
        }
    }

    /// Begins a message. Called for each event [`AnswerEvent::MessageStart`](crate::event::AnswerEvent::MessageStart).
    pub(crate) fn begin_message(&mut self, phase: Option<MessagePhase>) {
        self.sections.push(AnswerSection::Message(MessageSection {
            phase,
            text: self.text.len()..self.text.len(),
            refusal: self.refusal.len()..self.refusal.len(),
            logprobs: self.logprobs.len()..self.logprobs.len(),
        }));
    }

    /// Adds the last fragments of text, refusal and log probabilities to the last message; begins one if the last
    /// section is no message.
    fn extend_message(&mut self) {
        let (text, refusal, logprobs) = (self.text.len(), self.refusal.len(), self.logprobs.len());
        if let Some(AnswerSection::Message(message)) = self.sections.last_mut() {
            (message.text.end, message.refusal.end, message.logprobs.end) = (text, refusal, logprobs);
            return;
        }
        let ends = self.sections.iter().rev().find_map(|section| match section {
            AnswerSection::Message(message) => {
                Some((message.text.end, message.refusal.end, message.logprobs.end))
            }
            AnswerSection::Reasoning { .. } | AnswerSection::Call(_) => None,
        });
        let ends = ends.unwrap_or_default();
        self.sections.push(AnswerSection::Message(MessageSection {
            phase: None,
            text: ends.0..text,
            refusal: ends.1..refusal,
            logprobs: ends.2..logprobs,
        }));
    }

    /// Returns the non-empty fragments of text and then those of refusals of a message.
    pub(crate) fn message_texts(&self, message: &MessageSection) -> impl Iterator<Item = &EscapedText> {
        let text = self.text.get(message.text.clone()).unwrap_or_default();
        let refusal = self.refusal.get(message.refusal.clone()).unwrap_or_default();
        text.iter().chain(refusal).filter(|text| !text.is_empty())
    }

    /// Returns the non-empty fragments of reasoning in a range.
    pub(crate) fn reasoning_texts(&self, fragments: &Range<usize>) -> impl Iterator<Item = &EscapedText> {
        let fragments = self.reasoning.get(fragments.clone()).unwrap_or_default();
        fragments.iter().filter(|text| !text.is_empty())
    }
}
