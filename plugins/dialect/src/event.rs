//! Events of an answer, independent of the dialect.

use crate::delivered::with_text;
use bytes::Bytes;
use penstock_core::{FinishReason, MeasuredEnergy, ReportedUsage};
use penstock_json_scan::json::{self, StringClass};
use std::borrow::Cow;
use std::fmt;

/// Event of an answer, as a decoder returns it.
///
/// Decoders guarantee: `choice` is below 1024; the number of a tool call counts from 0 within its choice in order of
/// appearance; its [`AnswerEvent::ToolCallStart`] precedes its arguments and has a name and an id that are not empty; a
/// text is empty only with log probabilities or a signature. Engines may send a finish reason with each chunk: the last
/// [`AnswerEvent::Finish`] of a choice counts, and content may follow a finish.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerEvent {
    /// Start of the provider's answer. Has no data, because the response gets the gateway's own id and model name.
    Start,
    /// Reasoning text. A signature may come with the text, or afterwards with empty text.
    Reasoning {
        /// Index of the choice, from 0.
        choice: u32,
        /// Text to append.
        text: EscapedText,
        /// Provider's signature of the reasoning block that ends with the event.
        signature: Option<EscapedText>,
    },
    /// Text of the answer.
    Text {
        /// Index of the choice, from 0.
        choice: u32,
        /// Text to append.
        text: EscapedText,
        /// JSON object `choices[].logprobs` as the provider wrote it; `None` without log probabilities.
        logprobs: Option<Bytes>,
    },
    /// Text that declines to answer.
    Refusal {
        /// Index of the choice, from 0.
        choice: u32,
        /// Text to append.
        text: EscapedText,
    },
    /// Start of a tool call.
    ToolCallStart {
        /// Index of the choice, from 0.
        choice: u32,
        /// Number of the call within the choice, from 0, without gaps.
        tool: u32,
        /// Id of the call.
        id: EscapedText,
        /// Name of the function.
        name: EscapedText,
    },
    /// Fragment of a tool call's arguments; all fragments together are JSON text.
    ToolCallArguments {
        /// Index of the choice, from 0.
        choice: u32,
        /// Number of the call.
        tool: u32,
        /// Fragment of JSON text to append to the arguments.
        fragment: EscapedText,
    },
    /// End of a choice, unless further content of the choice follows.
    Finish {
        /// Index of the choice, from 0.
        choice: u32,
        /// Finish reason.
        reason: FinishReason,
        /// Matched stop sequence, if the provider reports it.
        stop_sequence: Option<EscapedText>,
    },
    /// Start of a message of an answer that consists of messages. It precedes the first text of the message. It is left
    /// out for the first message with text, if that message has no phase.
    MessageStart {
        /// Phase that the provider states.
        phase: Option<MessagePhase>,
        /// True if an earlier message has text.
        is_next: bool,
    },
    /// Usage so far. The counts of a later event replace the earlier ones, as described for
    /// [`ReportedUsage::updated_by`].
    Usage(ReportedUsage),
    /// Usage so far, from a chunk that has output too. Some engines report the usage in each chunk, so it does not prove
    /// that the answer is complete.
    InterimUsage(ReportedUsage),
    /// Energy measured by the provider.
    Energy(MeasuredEnergy),
    /// Reasoning that the provider sent encrypted. Clients do not get it, but it shows that tokens were generated.
    SealedReasoning {
        /// Bytes of the encrypted text.
        bytes: usize,
    },
    /// Keepalive event.
    Ping,
    /// Empty finish reasons: each choice without a finish reason had an empty one in its last chunk, without output.
    /// Directly before the end, because some engines write an empty finish reason in each chunk.
    EmptyFinish,
    /// Last event of the provider (`[DONE]`, `message_stop`).
    End,
}

/// Phase of a message of the responses dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessagePhase {
    /// Assistant message before the model has finished its work.
    Commentary,
    /// Answer to the request.
    FinalAnswer,
}

impl MessagePhase {
    /// Returns the phase with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Commentary, Self::FinalAnswer].into_iter().find(|phase| phase.name() == name)
    }

    /// Returns the name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commentary => "commentary",
            Self::FinalAnswer => "final_answer",
        }
    }
}

impl AnswerEvent {
    /// Returns the event for a client whose dialect has no messages inside an answer. The start of a message becomes a
    /// blank line if an earlier message has text, and otherwise `None`; other events are returned unchanged.
    #[must_use]
    pub fn flatten_message_start(self) -> Option<Self> {
        match self {
            Self::MessageStart { is_next, .. } => {
                is_next.then(|| Self::Text { choice: 0, text: EscapedText::new("\n\n"), logprobs: None })
            }
            event => Some(event),
        }
    }

    /// Returns the index of the event's choice; `None` for events that belong to no choice.
    #[must_use]
    pub const fn choice(&self) -> Option<u32> {
        match self {
            Self::Reasoning { choice, .. }
            | Self::Text { choice, .. }
            | Self::Refusal { choice, .. }
            | Self::ToolCallStart { choice, .. }
            | Self::ToolCallArguments { choice, .. }
            | Self::Finish { choice, .. } => Some(*choice),
            Self::Start
            | Self::MessageStart { .. }
            | Self::Usage(_)
            | Self::InterimUsage(_)
            | Self::Energy(_)
            | Self::SealedReasoning { .. }
            | Self::Ping
            | Self::EmptyFinish
            | Self::End => None,
        }
    }

    /// Returns the size of the generated text, or of the name of a started tool call, in bytes.
    #[must_use]
    pub fn generated_bytes(&self) -> usize {
        match self {
            Self::Text { text, .. } | Self::Reasoning { text, .. } | Self::Refusal { text, .. } => {
                text.decoded_len()
            }
            Self::ToolCallArguments { fragment, .. } => fragment.decoded_len(),
            Self::ToolCallStart { name, .. } => name.decoded_len(),
            Self::MessageStart { .. }
            | Self::Finish { .. }
            | Self::Usage(_)
            | Self::InterimUsage(_)
            | Self::Energy(_)
            | Self::SealedReasoning { .. }
            | Self::EmptyFinish
            | Self::End
            | Self::Start
            | Self::Ping => 0,
        }
    }

    /// Returns the text that the event appends to a choice; `None` for an event that appends no text.
    pub(crate) const fn text(&self) -> Option<&EscapedText> {
        match self {
            Self::Text { text, .. } | Self::Reasoning { text, .. } | Self::Refusal { text, .. } => Some(text),
            Self::ToolCallArguments { fragment, .. } => Some(fragment),
            _ => None,
        }
    }

    /// Returns the provider's signature of the reasoning that ends with the event; `None` for an event without one.
    pub(crate) const fn signature(&self) -> Option<&EscapedText> {
        match self {
            Self::Reasoning { signature, .. } => signature.as_ref(),
            _ => None,
        }
    }

    /// Returns the number of bytes of reasoning that only the provider can read: encrypted reasoning, and signatures,
    /// which may contain it.
    #[must_use]
    pub fn sealed_bytes(&self) -> usize {
        match self {
            Self::SealedReasoning { bytes } => *bytes,
            Self::Reasoning { signature: Some(signature), .. } => signature.decoded_len(),
            _ => 0,
        }
    }

    /// Returns the event with at most `max_bytes` of its text, cut between characters and without log probabilities;
    /// `None` if no text remains, or the event has none.
    pub(crate) fn truncate_to(self, max_bytes: usize) -> Option<Self> {
        let text = self.text()?.decoded();
        let end = (0..=max_bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end))?;
        let text = text.get(..end).filter(|text| !text.is_empty())?;
        Some(with_text(&self, text))
    }

    /// Returns true if the event is text, reasoning, a refusal or a part of a tool call. After the first such event of
    /// a stream, the answer is sent to the client.
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(
            self,
            Self::Reasoning { .. }
                | Self::Text { .. }
                | Self::Refusal { .. }
                | Self::ToolCallStart { .. }
                | Self::ToolCallArguments { .. }
        )
    }
}

/// Body of a JSON string, without its quotes: valid UTF-8 with valid escapes and without lone surrogates. It can be
/// written between quotes unchanged.
#[derive(Clone)]
pub struct EscapedText {
    escaped: Bytes,
    /// True if the text has no escapes: the bytes are the text.
    is_plain: bool,
}

impl EscapedText {
    /// Takes the body of a JSON string, without its quotes; returns `None` if it is invalid or has a lone surrogate.
    #[must_use]
    pub fn from_json(escaped: Bytes) -> Option<Self> {
        let plain = match json::classify_string(&escaped) {
            StringClass::Plain => true,
            StringClass::Escaped => false,
            StringClass::Invalid => return None,
        };
        Some(Self { escaped, is_plain: plain })
    }

    /// Escapes plain text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut escaped = Vec::with_capacity(text.len());
        json::write_escaped(&mut escaped, text);
        Self { is_plain: escaped.len() == text.len(), escaped: Bytes::from(escaped) }
    }

    /// Returns the text as the body of a JSON string, without quotes.
    #[must_use]
    pub fn escaped(&self) -> &[u8] {
        &self.escaped
    }

    /// Returns the escaped bytes, without quotes, sharing their memory.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.escaped.clone()
    }

    /// Returns a copy with memory of its own, so that the memory of the whole event can be freed.
    #[must_use]
    pub(crate) fn to_owned_copy(&self) -> Self {
        Self { escaped: Bytes::copy_from_slice(&self.escaped), is_plain: self.is_plain }
    }

    /// Returns the unescaped text, borrowed if there are no escapes.
    #[must_use]
    pub fn decoded(&self) -> Cow<'_, str> {
        json::unescape(&self.escaped).unwrap_or_default()
    }

    /// Returns the length of the unescaped text, in bytes.
    #[must_use]
    pub fn decoded_len(&self) -> usize {
        if self.is_plain { self.escaped.len() } else { unescaped_len(&self.escaped) }
    }

    /// Returns true if the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.escaped.is_empty()
    }

    /// Returns true if the unescaped text is empty or consists of white space of JSON (blank, tab, LF, CR).
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let mut rest = self.escaped();
        loop {
            rest = match rest {
                [] => return true,
                [b' ', rest @ ..]
                | [b'\\', b'n' | b't' | b'r', rest @ ..]
                | [b'\\', b'u', b'0', b'0', b'2', b'0', rest @ ..]
                | [b'\\', b'u', b'0', b'0', b'0', b'9' | b'a' | b'A' | b'd' | b'D', rest @ ..] => rest,
                _ => return false,
            }
        }
    }
}

/// Returns the length in bytes that valid escaped text has after unescaping, without unescaping it: each half of a
/// surrogate pair counts as two of the pair's four bytes.
fn unescaped_len(escaped: &[u8]) -> usize {
    let (mut length, mut rest) = (0, escaped);
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (bytes, escape_bytes) = match rest.get(at + 1..).unwrap_or_default() {
            [b'u', b'0', b'0', b'0'..=b'7', ..] => (1, 6),
            [b'u', b'0', b'0'..=b'7', ..]
            | [b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F', ..] => (2, 6),
            [b'u', ..] => (3, 6),
            _ => (1, 2),
        };
        length += at + bytes;
        rest = rest.get(at + escape_bytes..).unwrap_or_default();
    }
    length + rest.len()
}

impl Default for EscapedText {
    fn default() -> Self {
        Self { escaped: Bytes::new(), is_plain: true }
    }
}

impl PartialEq for EscapedText {
    fn eq(&self, other: &Self) -> bool {
        self.escaped == other.escaped || self.decoded() == other.decoded()
    }
}

impl Eq for EscapedText {}

impl fmt::Debug for EscapedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prompts and answers must never appear in logs.
        write!(f, "Text({} bytes)", self.escaped.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn text(escaped: &str) -> EscapedText {
        EscapedText::from_json(Bytes::from(escaped.to_owned())).unwrap()
    }

    #[test]
    fn the_length_of_escaped_text_is_that_of_the_decoded_text() {
        for escaped in [
            r#"\"\\\/\b\f\n\r\t"#,
            r"\u0000\u007f\u0080\u07ff\u0800\ud7ff\ue000\uffff",
            r"a\u00e9b\uD83D\uDE00c\ud83d\ude00\udbff\udfff",
            "é\u{1f600}\\n",
        ] {
            assert_eq!(text(escaped).decoded_len(), text(escaped).decoded().len(), "{escaped}");
        }
    }

    #[test]
    fn white_space_is_blank_at_any_length_and_in_any_notation() {
        let long = r"\n".repeat(1000);
        for blank in ["", "  ", r" \n\t\r ", r"\u0020\u0009\u000a\u000D", &long] {
            assert!(text(blank).is_blank(), "{blank}");
        }
        for content in ["{", r"\n{}", r"\u007b", r#"\""#, r"\u000b", r"\\n"] {
            assert!(!text(content).is_blank(), "{content}");
        }
    }
}
