//! A request's prompt in a form that belongs to no dialect.
//!
//! Promises: reading keeps every text, tool, call, result and image that the model will see, in the
//! model's order; what is read is never larger than the body; nothing here prints its content.

mod chat;
mod messages;
mod read;

#[cfg(test)]
mod tests;

use crate::image::Image;
pub use read::ReadError;
use serde_json::{Map, Value};
use std::fmt;

/// The prompt of a chat or messages request.
#[derive(Clone, Default, PartialEq)]
pub struct Conversation {
    /// The turns, oldest first; leading system turns included.
    pub turns: Vec<Turn>,
    /// The functions the model may call.
    pub tools: Vec<Tool>,
    /// How much the model is asked to think, where it can be told.
    pub effort: Option<Effort>,
    /// Further variables for the chat template (`chat_template_kwargs`).
    pub arguments: Map<String, Value>,
    /// The last turn is the model's own and is to be continued (prefill).
    pub continues: bool,
    /// Seconds since 1970 (UTC), for templates that write the date. 0 when not set.
    pub unix_seconds: i64,
}

/// One turn.
#[derive(Clone, Default, PartialEq)]
pub struct Turn {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// The client wrote a list of parts, not a string.
    pub listed: bool,
    /// The model's thoughts, of an assistant turn.
    pub reasoning: Option<String>,
    /// Calls of an assistant turn.
    pub calls: Vec<Call>,
    /// The id of the call a tool turn answers.
    pub answers: Option<String>,
    /// The speaker's name, or the function's of a tool turn where it is known.
    pub name: Option<String>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// The operator of the application; `developer` is the same.
    System,
    /// The person.
    #[default]
    User,
    /// The model.
    Assistant,
    /// A function's result.
    Tool,
}

impl Role {
    /// The name chat templates know.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A piece of a turn.
#[derive(Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image.
    Image(Image),
    /// Something whose tokens cannot be known here (sound, video, a file).
    Opaque {
        /// The part's type on the wire.
        kind: String,
        /// The bytes of its content as sent.
        bytes: usize,
    },
}

/// A call of a function.
#[derive(Clone, Default, PartialEq)]
pub struct Call {
    /// Its id.
    pub id: String,
    /// The function.
    pub name: String,
    /// The arguments: a JSON text.
    pub arguments: String,
}

/// A function the model may call.
#[derive(Clone, Default, PartialEq)]
pub struct Tool {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub parameters: Option<Value>,
    /// `strict`, if given.
    pub strict: Option<bool>,
}

/// How much the model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Little.
    Low,
    /// The usual.
    Medium,
    /// A lot.
    High,
}

impl Effort {
    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Folds every known name onto the three.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "none" | "minimal" | "low" => Some(Self::Low),
            "medium" => Some(Self::Medium),
            "high" | "xhigh" | "max" => Some(Self::High),
            _ => None,
        }
    }
}

impl Conversation {
    /// Reads the body of a chat completions request. Fields that are no part of the prompt are
    /// ignored, and so are unknown ones.
    ///
    /// # Errors
    /// The body is not JSON, or a field of the prompt has the wrong type.
    pub fn from_chat(body: &[u8]) -> Result<Self, ReadError> {
        chat::read(body)
    }

    /// Reads the body of a messages request (`max_tokens` is not needed). Results come before the
    /// rest of their turn, as a provider will get them.
    ///
    /// # Errors
    /// The body is not JSON, or a field of the prompt has the wrong type.
    pub fn from_messages(body: &[u8]) -> Result<Self, ReadError> {
        messages::read(body)
    }

    /// Whether the body of a request can be read in memory of a few times its size: bodies with millions of JSON
    /// values cannot, and need not be.
    #[must_use]
    pub fn is_readable(body: &[u8]) -> bool {
        read::is_readable(body)
    }

    /// The same conversation at a time: seconds since 1970 (UTC).
    #[must_use]
    pub fn at(mut self, unix_seconds: i64) -> Self {
        self.unix_seconds = unix_seconds;
        self
    }

    /// Every image, in order.
    pub fn images(&self) -> impl Iterator<Item = &Image> {
        self.turns.iter().flat_map(|turn| &turn.parts).filter_map(|part| match part {
            Part::Image(image) => Some(image),
            _ => None,
        })
    }

    /// The first part that nothing here can count, by its type.
    pub(crate) fn opaque(&self) -> Option<&str> {
        self.turns.iter().flat_map(|turn| &turn.parts).find_map(|part| match part {
            Part::Opaque { kind, .. } => Some(kind.as_str()),
            _ => None,
        })
    }
}

impl Turn {
    /// A turn of plain text.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], ..Self::default() }
    }

    /// The texts of the turn, joined.
    pub(crate) fn joined(&self, separator: &str) -> String {
        let mut out = String::new();
        for (at, text) in self.texts().enumerate() {
            if at > 0 {
                out.push_str(separator);
            }
            out.push_str(text);
        }
        out
    }

    /// The texts of the turn.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl fmt::Debug for Conversation {
    /// Counts only: a prompt is nobody's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("turns", &self.turns.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}
