//! What an answer says, in neither dialect.

use bytes::Bytes;
use penstock_contract::{Finish, Measured, Stated};
use penstock_wire::json::{self, Inside};
use std::borrow::Cow;
use std::fmt;

/// One thing that a provider said.
///
/// Decoders promise: `choice` is a small number; a tool's number counts from 0
/// within its choice in order of appearance; its [`Event::ToolStart`] comes
/// before its arguments, with a name and an id that are not empty; a text is
/// empty only beside log probabilities or a signature. Engines may say of each
/// chunk that it is the last: the last [`Event::Finish`] of a choice counts, and
/// content may follow one.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The provider began to answer. Carries nothing: ids and names are ours.
    Start,
    /// Reasoning. A signature may come with it, or after it with empty text.
    Reasoning {
        /// Candidate, from 0.
        choice: u32,
        /// What was added.
        text: Text,
        /// The provider's seal on the block of reasoning that ends here.
        signature: Option<Text>,
    },
    /// Text of the answer.
    Text {
        /// Candidate, from 0.
        choice: u32,
        /// What was added.
        text: Text,
        /// `choices[].logprobs` as the provider wrote it: a JSON object.
        logprobs: Option<Bytes>,
    },
    /// Text that declines to answer.
    Refusal {
        /// Candidate, from 0.
        choice: u32,
        /// What was added.
        text: Text,
    },
    /// A tool call begins.
    ToolStart {
        /// Candidate, from 0.
        choice: u32,
        /// Number of the call within the candidate, from 0, without gaps.
        tool: u32,
        /// The call's id.
        id: Text,
        /// The function's name.
        name: Text,
    },
    /// More of a tool call's arguments; all of them together are JSON text.
    ToolArguments {
        /// Candidate, from 0.
        choice: u32,
        /// Number of the call.
        tool: u32,
        /// What was added.
        fragment: Text,
    },
    /// A candidate is complete, unless more of it follows.
    Finish {
        /// Candidate, from 0.
        choice: u32,
        /// Why.
        reason: Finish,
        /// The stop sequence that was met, if the provider tells.
        stop_sequence: Option<Text>,
    },
    /// What was used so far; a later word replaces its half.
    Usage(Stated),
    /// Energy that the provider measured.
    Energy(Measured),
    /// A sign of life.
    Ping,
    /// The provider's last word (`[DONE]`, `message_stop`).
    End,
}

impl Event {
    /// The candidate it belongs to.
    #[must_use]
    pub const fn choice(&self) -> Option<u32> {
        match self {
            Self::Reasoning { choice, .. }
            | Self::Text { choice, .. }
            | Self::Refusal { choice, .. }
            | Self::ToolStart { choice, .. }
            | Self::ToolArguments { choice, .. }
            | Self::Finish { choice, .. } => Some(*choice),
            Self::Start | Self::Usage(_) | Self::Energy(_) | Self::Ping | Self::End => None,
        }
    }

    /// Bytes of generated text.
    #[must_use]
    pub fn generated(&self) -> usize {
        match self {
            Self::Text { text, .. } | Self::Reasoning { text, .. } | Self::Refusal { text, .. } => text.len(),
            Self::ToolArguments { fragment, .. } => fragment.len(),
            Self::ToolStart { name, .. } => name.len(),
            Self::Finish { .. } | Self::Usage(_) | Self::Energy(_) | Self::End | Self::Start | Self::Ping => {
                0
            }
        }
    }

    /// Whether it is a content token: with the first one an answer is committed.
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(
            self,
            Self::Reasoning { .. }
                | Self::Text { .. }
                | Self::Refusal { .. }
                | Self::ToolStart { .. }
                | Self::ToolArguments { .. }
        )
    }
}

/// Text as it stands between the quotes of a JSON string: valid UTF-8, valid
/// escapes, no half of a surrogate pair. It can be put between quotes as it is.
#[derive(Clone)]
pub struct Text {
    escaped: Bytes,
    /// Nothing is escaped: the bytes are the text.
    plain: bool,
}

impl Text {
    /// Takes what stands between the quotes of a JSON string, if that is sound.
    #[must_use]
    pub fn from_json(escaped: Bytes) -> Option<Self> {
        let plain = match json::inside(&escaped) {
            Inside::Plain => true,
            Inside::Escaped => false,
            Inside::Unsound => return None,
        };
        Some(Self { escaped, plain })
    }

    /// From plain text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut escaped = Vec::with_capacity(text.len());
        json::write_escaped(&mut escaped, text);
        Self { plain: escaped.len() == text.len(), escaped: Bytes::from(escaped) }
    }

    /// The escaped bytes, to be put between quotes.
    #[must_use]
    pub fn escaped(&self) -> &[u8] {
        &self.escaped
    }

    /// The escaped bytes, shared.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.escaped.clone()
    }

    /// The text itself; borrowed where nothing was escaped.
    #[must_use]
    pub fn decoded(&self) -> Cow<'_, str> {
        json::unescape(&self.escaped).unwrap_or_default()
    }

    /// Bytes of the text itself.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.plain { self.escaped.len() } else { self.decoded().len() }
    }

    /// No text at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.escaped.is_empty()
    }
}

impl Default for Text {
    fn default() -> Self {
        Self { escaped: Bytes::new(), plain: true }
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.escaped == other.escaped || self.decoded() == other.decoded()
    }
}

impl Eq for Text {}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prompts and answers do not belong into logs, not even by accident.
        write!(f, "Text({} bytes)", self.escaped.len())
    }
}
