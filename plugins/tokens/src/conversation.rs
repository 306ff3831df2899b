//! Prompt of a request in a form independent of its dialect.
//!
//! Guarantees: parsing retains every text, tool, call, result and image that the model will see, in the model's order;
//! the parsed prompt is never larger than the body; nothing in this module prints the content of a prompt.

mod chat;
mod messages;
mod read;

#[cfg(test)]
mod tests;

use crate::image::PromptImage;
pub use read::PromptParseError;
use serde_json::{Map, Value};
use std::fmt;

/// Prompt of a chat or messages request.
#[derive(Clone, Default, PartialEq)]
pub struct PromptConversation {
    /// Messages, oldest first, including the system messages.
    pub messages: Vec<PromptMessage>,
    /// Functions that the model may call.
    pub tools: Vec<FunctionTool>,
    /// Requested reasoning effort, for models that support it; `None` if none was requested, or one with an unknown
    /// name.
    pub effort: Option<PromptEffort>,
    /// Further variables for the chat template (`chat_template_kwargs`).
    pub template_arguments: Map<String, Value>,
    /// True if the last message is an answer of the model that has to be continued (prefill).
    pub continues: bool,
    /// Time in Unix seconds, for templates that write the date; 0 if it is not set.
    pub unix_seconds: i64,
}

/// Message of a conversation.
#[derive(Clone, Default, PartialEq)]
pub struct PromptMessage {
    /// Role of the speaker.
    pub role: SpeakerRole,
    /// Content of the message, in order.
    pub parts: Vec<PromptPart>,
    /// True if chat templates that accept a list of parts get one; otherwise they get one string.
    pub has_part_list: bool,
    /// Reasoning text of an assistant message.
    pub reasoning: Option<String>,
    /// Calls of an assistant message.
    pub calls: Vec<FunctionCall>,
    /// Id of the call that a tool message answers.
    pub call_id: Option<String>,
    /// Name of the speaker; for a tool message, name of the function. `None` if unknown.
    pub name: Option<String>,
}

/// Role of a speaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpeakerRole {
    /// Instructions of the operator of the application. The role `developer` is treated the same.
    System,
    /// End user.
    #[default]
    User,
    /// Model.
    Assistant,
    /// Result of a function.
    Tool,
}

impl SpeakerRole {
    /// Returns the name in chat templates.
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

/// Part of a message.
#[derive(Clone, PartialEq)]
pub enum PromptPart {
    /// Text part.
    Text(String),
    /// Image part.
    Image(PromptImage),
    /// Part whose tokens cannot be counted by this crate (audio, video, a file).
    Opaque {
        /// Type of the part on the wire.
        kind: String,
        /// Size of the part for an estimate of its tokens: the bytes of its strings, and 8 for each other value.
        bytes: usize,
    },
}

/// Call of a function.
#[derive(Clone, Default, PartialEq)]
pub struct FunctionCall {
    /// Id of the call.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
}

/// Function that the model may call.
#[derive(Clone, Default, PartialEq)]
pub struct FunctionTool {
    /// Name of the function.
    pub name: String,
    /// Description of the function.
    pub description: Option<String>,
    /// JSON Schema of the function's arguments.
    pub parameters: Option<Value>,
    /// Value of `strict`, if given.
    pub strict: Option<bool>,
}

/// Reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptEffort {
    /// Low effort.
    Low,
    /// Default effort.
    Medium,
    /// High effort.
    High,
}

impl PromptEffort {
    /// Returns the name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// Maps each known name of an effort to one of the three levels; `None` for other names.
    fn parse(name: &str) -> Option<Self> {
        match name {
            "none" | "minimal" | "low" => Some(Self::Low),
            "medium" => Some(Self::Medium),
            "high" | "xhigh" | "max" => Some(Self::High),
            _ => None,
        }
    }
}

impl PromptConversation {
    /// Parses the body of a chat completions request. Fields outside the prompt and unknown fields are ignored.
    ///
    /// # Errors
    /// Returns an error if the body is not JSON, or a field of the prompt has the wrong type.
    pub fn from_chat(body: &[u8]) -> Result<Self, PromptParseError> {
        chat::parse_conversation(body)
    }

    /// Parses the body of a messages request. Fields outside the prompt, such as `max_tokens`, are not read. The tool
    /// results of a message come before its other content, in the order in which providers receive them.
    ///
    /// # Errors
    /// Returns an error if the body is not JSON, or a field of the prompt has the wrong type.
    pub fn from_messages(body: &[u8]) -> Result<Self, PromptParseError> {
        messages::parse_conversation(body)
    }

    /// Returns true if the memory for parsing the body is at most a few times the size of the body. A body with
    /// millions of JSON values needs more, and is not parsed.
    #[must_use]
    pub fn fits_parse_memory_limit(body: &[u8]) -> bool {
        read::fits_memory_limit(body)
    }

    /// Sets the time of the conversation: seconds since 1970 (UTC).
    #[must_use]
    pub fn with_time(mut self, unix_seconds: i64) -> Self {
        self.unix_seconds = unix_seconds;
        self
    }

    /// Returns every image, in order.
    pub fn images(&self) -> impl Iterator<Item = &PromptImage> {
        self.messages.iter().flat_map(|turn| &turn.parts).filter_map(|part| match part {
            PromptPart::Image(image) => Some(image),
            _ => None,
        })
    }

    /// Returns the type of the first part that cannot be counted by this crate.
    pub(crate) fn first_opaque_part(&self) -> Option<&str> {
        self.messages.iter().flat_map(|turn| &turn.parts).find_map(|part| match part {
            PromptPart::Opaque { kind, .. } => Some(kind.as_str()),
            _ => None,
        })
    }
}

impl PromptMessage {
    /// Creates a message of plain text.
    #[must_use]
    pub fn from_text(role: SpeakerRole, text: impl Into<String>) -> Self {
        Self { role, parts: vec![PromptPart::Text(text.into())], ..Self::default() }
    }

    /// Appends the reasoning of a later message or block on a new line, as the gateway sends it to chat providers.
    pub(crate) fn append_reasoning(&mut self, more: Option<String>) {
        let Some(more) = more.filter(|text| !text.is_empty()) else { return };
        match &mut self.reasoning {
            Some(reasoning) => {
                reasoning.push('\n');
                reasoning.push_str(&more);
            }
            None => self.reasoning = Some(more),
        }
    }

    /// Appends a later message of the same role, as a new paragraph. Texts stay one text unless there is a list of
    /// parts.
    pub(crate) fn append_message(&mut self, more: Self) {
        if !self.parts.is_empty() && !more.parts.is_empty() {
            match self.parts.last_mut() {
                Some(PromptPart::Text(text)) => text.push_str("\n\n"),
                _ => self.parts.push(PromptPart::Text("\n\n".to_owned())),
            }
        }
        self.has_part_list |= more.has_part_list;
        self.calls.extend(more.calls);
        self.append_reasoning(more.reasoning);
        for part in more.parts {
            match (self.parts.last_mut(), part) {
                (Some(PromptPart::Text(text)), PromptPart::Text(more)) if !self.has_part_list => {
                    text.push_str(&more)
                }
                (_, part) => self.parts.push(part),
            }
        }
    }

    /// Joins the texts of the message.
    pub(crate) fn join_texts(&self, separator: &str) -> String {
        let mut out = String::new();
        for (at, text) in self.texts().enumerate() {
            if at > 0 {
                out.push_str(separator);
            }
            out.push_str(text);
        }
        out
    }

    /// Returns the texts of the message.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            PromptPart::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl fmt::Debug for PromptConversation {
    /// Prints counts only, because prompts are confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation")
            .field("turns", &self.messages.len())
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}
