//! Kind of the content of a choice, to tell an empty answer from one that cannot be read.

use super::MessageMembers;
use crate::event::AnswerEvent;
use crate::json_cursor;

/// Kind of the content that a choice has had so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContentRecognition {
    /// No content: an answer may be empty.
    #[default]
    None,
    /// Content of an unknown kind only: a part without text, or a tool call without known members.
    Unknown,
    /// Text, reasoning, a refusal or a tool call. The text of a part may be empty.
    Recognized,
}

impl ContentRecognition {
    /// Returns the kind of the choice's content after a chunk. `parts` is the kind of the chunk's content parts,
    /// `events` are the events of the chunk, and `has_calls` is true if the choice has tool calls, since the fragment
    /// of a call may give no event yet.
    pub(super) fn after_chunk(
        self,
        parts: Self,
        message: &MessageMembers<'_>,
        events: &[AnswerEvent],
        has_calls: bool,
    ) -> Self {
        let has_elements =
            |value: &[u8]| json_cursor::is_array(value) && json_cursor::elements(value).next().is_some();
        self.max(parts).max(match () {
            () if has_calls || events.iter().any(AnswerEvent::is_content) => Self::Recognized,
            () if message.tool_calls.is_some_and(has_elements) => Self::Unknown,
            () => Self::None,
        })
    }
}

/// Channels (text, reasoning, refusal) of a choice that have had output so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EmittedChannels {
    pub(super) text: bool,
    pub(super) reasoning: bool,
    pub(super) refusal: bool,
}

impl EmittedChannels {
    /// Records the channels of the text events among `events`.
    pub(super) fn record_events(&mut self, events: &[AnswerEvent]) {
        for event in events {
            match event {
                AnswerEvent::Text { .. } => self.text = true,
                AnswerEvent::Reasoning { .. } => self.reasoning = true,
                AnswerEvent::Refusal { .. } => self.refusal = true,
                _ => {}
            }
        }
    }
}
