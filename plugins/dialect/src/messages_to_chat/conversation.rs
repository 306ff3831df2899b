//! Writer that converts the messages of the messages dialect to chat messages, in the order that strict templates
//! require.
//!
//! - Consecutive messages of one role are merged into one turn.
//! - Tool results come first in their turn, each as a `tool` message, without other messages between them. Images that
//!   a `tool` message cannot have follow in a user message.
//! - A later system text stays at its position if the provider's template accepts that; otherwise it joins an adjacent
//!   user turn, marked as not from the user. It never moves to the front, because that would change the prompt's prefix
//!   on every turn.
//! - Each tool call needs a result in the next user turn, or the request is refused.

use super::block::{ContentPart, EscapedBytes, MessageContent, append_content_parts, is_vendor_block};
use super::content::{
    append_assistant_block, append_system_texts, fold_system_texts, mark_as_system, parse_tool_result,
    trim_trailing_space,
};
use super::serialize;
use crate::body_builder::BodyBuilder;
use crate::continuation_mark::ContinuationMark;
use crate::json_cursor::{self, JsonCursor};
use crate::system_messages::HiddenSystemMessages;
use crate::unanswered_tool_calls::UnansweredToolCalls;
use penstock_core::{ApiError, AttemptTarget, InferenceRequest};
use std::borrow::Cow;
use std::convert::Infallible;

/// Tool call of the assistant.
pub(super) struct ToolUse<'a> {
    pub id: &'a [u8],
    pub name: &'a [u8],
    pub input: &'a [u8],
}

/// Result of a tool call.
pub(super) struct ToolResultBlock<'a> {
    pub id: &'a [u8],
    pub parts: Vec<ContentPart<'a>>,
    pub is_error: bool,
}

/// User message: tool results, then other content.
#[derive(Default)]
pub(super) struct UserMessage<'a> {
    pub results: Vec<ToolResultBlock<'a>>,
    pub parts: Vec<ContentPart<'a>>,
    /// System texts that came after the previous assistant message. They are written after the tool results and before
    /// the other content.
    pub system_texts: Vec<EscapedBytes<'a>>,
}

/// Assistant message: texts, reasoning and tool calls.
#[derive(Default)]
pub(super) struct AssistantMessage<'a> {
    pub texts: Vec<EscapedBytes<'a>>,
    pub reasoning: Vec<EscapedBytes<'a>>,
    pub calls: Vec<ToolUse<'a>>,
}

enum OpenMessage<'a> {
    User(UserMessage<'a>),
    Assistant(AssistantMessage<'a>),
}

/// Writer of chat messages: merges consecutive messages of one role, and writes them when another role follows.
pub(super) struct ConversationWriter<'a> {
    target: AttemptTarget<'a>,
    /// System texts before the first turn; `None` once they are written.
    leading_system: Option<Vec<EscapedBytes<'a>>>,
    open_message: Option<OpenMessage<'a>>,
    /// True if a message is written, so that the next one needs a comma.
    is_started: bool,
    /// Tool calls that have no result so far.
    unanswered_calls: UnansweredToolCalls<'a, ()>,
    /// Index of the message that contains the unanswered calls.
    calls_index: usize,
    /// System texts for the next user turn.
    pending_system: Vec<EscapedBytes<'a>>,
    /// System messages that are left out.
    hidden_system: HiddenSystemMessages,
}

impl<'a> ConversationWriter<'a> {
    /// Creates a writer for a request; the texts of its member `system`, if there is one, precede all messages.
    ///
    /// # Errors
    /// Returns an error if the system prompt is neither a string nor text blocks.
    pub(super) fn new(ask: &'a InferenceRequest, target: &AttemptTarget<'a>) -> Result<Self, ApiError> {
        let mut lead = Vec::new();
        if let Some(system) = ask.member_value("system") {
            let system = MessageContent::parse(&mut JsonCursor::new(system));
            append_system_texts(&system, &|| "system".to_owned(), &mut lead)?;
        }
        Ok(Self {
            target: *target,
            leading_system: Some(lead),
            open_message: None,
            is_started: false,
            unanswered_calls: UnansweredToolCalls::default(),
            calls_index: 0,
            pending_system: Vec::new(),
            hidden_system: HiddenSystemMessages::from_request(ask),
        })
    }

    /// Adds one element of `messages`.
    ///
    /// # Errors
    /// Returns an error with the path of a value that cannot be translated.
    pub(super) fn add_message(
        &mut self,
        index: usize,
        message: &mut JsonCursor<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let (mut role, mut content, mut clear_at) = (Cow::Borrowed(""), None, None);
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match key {
                "role" => role = json_cursor::parse_string(value.take_value()).unwrap_or_default(),
                "content" => content = Some(MessageContent::parse(value)),
                "clear_at" => clear_at = Some(value.take_value()),
                _ => {}
            }
            Ok(())
        });
        if role == "system" && clear_at.is_some_and(|clear_at| self.hidden_system.hides(index, clear_at)) {
            return Ok(());
        }
        let content = content.as_ref().ok_or_else(|| {
            ApiError::invalid(format!("messages.{index}.content"), "A message needs `content`.")
        })?;
        match &*role {
            "user" => self.add_user(index, content, out),
            "assistant" => self.add_assistant(index, content, out),
            "system" => self.add_system(index, content, out),
            _ => Err(ApiError::invalid(
                format!("messages.{index}.role"),
                "A role must be `user`, `assistant` or `system`.",
            )),
        }
    }

    /// Writes the open turn and ends the conversation. Returns true if the last turn is of the assistant, so that the
    /// provider must continue it; that turn gets the `mark`.
    ///
    /// `delivered` is the delivered text of the answer, as the body of a JSON string.
    ///
    /// # Errors
    /// Returns an error if tool calls have no results, or if there are no turns.
    pub(super) fn finish(
        &mut self,
        delivered: Option<EscapedBytes<'a>>,
        mark: Option<ContinuationMark>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<bool, ApiError> {
        if !self.pending_system.is_empty()
            && !matches!(self.open_message, Some(OpenMessage::User(_)))
            && self.unanswered_calls.is_empty()
        {
            self.open_user_message(out)?;
        }
        if let Some(OpenMessage::Assistant(turn)) = &mut self.open_message {
            if !turn.calls.is_empty() {
                return Err(self.missing_results_error());
            }
            trim_trailing_space(&mut turn.texts);
        }
        if let Some(delivered) = delivered {
            self.open_assistant_message(out)?.texts.push(delivered);
        }
        if self.open_message.is_none() && !self.is_started {
            return Err(ApiError::invalid("messages", "There must be at least one message with content."));
        }
        let is_continued = matches!(self.open_message, Some(OpenMessage::Assistant(_)));
        self.flush_with(mark.filter(|_| is_continued), out)?;
        Ok(is_continued)
    }

    fn add_user(
        &mut self,
        index: usize,
        content: &MessageContent<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let at = || format!("messages.{index}.content");
        let mut turn = UserMessage::default();
        if let MessageContent::Blocks(blocks) = content {
            for (position, block) in blocks.iter().enumerate() {
                let at = || format!("messages.{index}.content.{position}");
                if block.kind == "tool_result" {
                    turn.results.push(parse_tool_result(block, &at)?);
                } else {
                    block.append_parts(&at, &mut turn.parts)?;
                }
            }
        } else {
            append_content_parts(content, &at, &mut turn.parts)?;
        }
        if turn.results.is_empty() && turn.parts.is_empty() {
            return Err(empty_content_error(content, at()));
        }
        self.open_user_message(out)?;
        for result in &turn.results {
            if !self.unanswered_calls.remove_answered(result.id) {
                return Err(ApiError::invalid(
                    at(),
                    "A `tool_result` block needs a `tool_use` block with its id in the turn before.",
                ));
            }
        }
        if let Some(OpenMessage::User(open)) = &mut self.open_message {
            open.results.append(&mut turn.results);
            open.parts.append(&mut turn.parts);
        }
        Ok(())
    }

    fn add_assistant(
        &mut self,
        index: usize,
        content: &MessageContent<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let mut turn = AssistantMessage::default();
        match content {
            MessageContent::Blocks(blocks) => {
                for (position, block) in blocks.iter().enumerate() {
                    append_assistant_block(
                        block,
                        &|| format!("messages.{index}.content.{position}"),
                        &mut turn,
                    )?;
                }
            }
            MessageContent::Text(text) => turn.texts.push(Cow::Borrowed(text)),
            MessageContent::Other => {
                let at = format!("messages.{index}.content");
                return Err(ApiError::invalid(at, "Expected a string or a list of content blocks."));
            }
        }
        turn.texts.retain(|text| !text.is_empty());
        if self.target.reasoning_replay_member().is_none() {
            turn.reasoning.clear();
        }
        if turn.texts.is_empty() && turn.calls.is_empty() && turn.reasoning.is_empty() {
            return Ok(());
        }
        if !turn.calls.is_empty() {
            self.calls_index = index;
        }
        let open = self.open_assistant_message(out)?;
        if !open.texts.is_empty() && !turn.texts.is_empty() {
            open.texts.push(Cow::Borrowed(br"\n\n"));
        }
        open.texts.append(&mut turn.texts);
        open.reasoning.append(&mut turn.reasoning);
        open.calls.append(&mut turn.calls);
        Ok(())
    }

    fn add_system(
        &mut self,
        index: usize,
        content: &MessageContent<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let mut texts = Vec::new();
        append_system_texts(content, &|| format!("messages.{index}.content"), &mut texts)?;
        match (&mut self.leading_system, &mut self.open_message) {
            (Some(lead), None) => lead.append(&mut texts),
            // No message is allowed between tool calls and their results.
            (_, Some(OpenMessage::Assistant(turn))) if !turn.calls.is_empty() => {
                self.pending_system.append(&mut texts)
            }
            (_, Some(OpenMessage::User(turn)))
                if self.target.capabilities.system_anywhere && !self.unanswered_calls.is_empty() =>
            {
                turn.system_texts.append(&mut texts);
            }
            _ if self.target.capabilities.system_anywhere => {
                self.flush(out)?;
                for text in texts {
                    serialize::write_comma(out);
                    serialize::write_system(&[text], out);
                }
            }
            // This turn has only tool results, and its system texts are written after them. A later system text joins
            // these system texts.
            (_, Some(OpenMessage::User(turn))) if turn.parts.is_empty() && !turn.system_texts.is_empty() => {
                turn.system_texts.append(&mut texts);
            }
            (_, Some(OpenMessage::User(turn))) => fold_system_texts(turn, texts),
            _ => self.pending_system.append(&mut texts),
        }
        Ok(())
    }

    /// Opens a user turn with the pending system texts, unless a user turn is open already.
    fn open_user_message(&mut self, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
        if !matches!(self.open_message, Some(OpenMessage::User(_))) {
            self.flush(out)?;
            let turn = UserMessage {
                system_texts: std::mem::take(&mut self.pending_system),
                ..UserMessage::default()
            };
            self.open_message = Some(OpenMessage::User(turn));
        }
        Ok(())
    }

    fn open_assistant_message(
        &mut self,
        out: &mut BodyBuilder<'_>,
    ) -> Result<&mut AssistantMessage<'a>, ApiError> {
        if !matches!(self.open_message, Some(OpenMessage::Assistant(_))) {
            if !self.pending_system.is_empty() {
                self.open_user_message(out)?;
            }
            self.flush(out)?;
        }
        match self.open_message.get_or_insert_with(|| OpenMessage::Assistant(AssistantMessage::default())) {
            OpenMessage::Assistant(turn) => Ok(turn),
            OpenMessage::User(_) => Err(ApiError::new(penstock_core::ErrorCode::Internal)),
        }
    }

    fn flush(&mut self, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
        self.flush_with(None, out)
    }

    /// Writes the message that is being collected, and closes it; `mark` is set if the provider must continue it.
    fn flush_with(
        &mut self,
        mark: Option<ContinuationMark>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let Some(turn) = self.open_message.take() else {
            return Ok(());
        };
        if let Some(lead) = self.leading_system.take().filter(|lead| !lead.is_empty()) {
            serialize::write_system(&lead, out);
            self.is_started = true;
        }
        if std::mem::replace(&mut self.is_started, true) {
            serialize::write_comma(out);
        }
        match turn {
            OpenMessage::User(mut turn) => {
                if !self.unanswered_calls.is_empty() {
                    return Err(self.missing_results_error());
                }
                if !self.target.capabilities.system_anywhere {
                    let systems = std::mem::take(&mut turn.system_texts);
                    let (systems_first, rest) = (systems, std::mem::take(&mut turn.parts));
                    if rest.is_empty() {
                        fold_system_texts(&mut turn, systems_first);
                    } else {
                        turn.parts = systems_first.into_iter().map(mark_as_system).chain(rest).collect();
                    }
                }
                serialize::write_user(turn, self.target.capabilities, out);
            }
            OpenMessage::Assistant(turn) => {
                if !turn.calls.iter().all(|call| self.unanswered_calls.add_call(call.id, ())) {
                    return Err(ApiError::invalid(
                        format!("messages.{}.content", self.calls_index),
                        "Each `tool_use` block of a turn needs an id of its own.",
                    ));
                }
                serialize::write_assistant(&turn, &self.target, mark, out);
            }
        }
        Ok(())
    }

    fn missing_results_error(&self) -> ApiError {
        ApiError::invalid(
            format!("messages.{}", self.calls_index),
            "Each `tool_use` block needs a `tool_result` block with its id in the next message.",
        )
    }
}

/// Returns the error for an empty user turn. If it were dropped, the provider would continue the assistant turn before
/// it.
fn empty_content_error(content: &MessageContent<'_>, path: String) -> ApiError {
    match content {
        MessageContent::Blocks(blocks) if blocks.iter().any(|block| is_vendor_block(&block.kind)) => {
            ApiError::unsupported(path, "Nothing in this message can be read by this model.")
        }
        _ => ApiError::invalid(path, "The content of a user message must not be empty."),
    }
}
