//! Conversation writer: converts messages to chat messages in the order that strict
//! templates require.
//!
//! - Consecutive messages of one role are merged into one turn.
//! - Tool results come first in their turn, each as a `tool` message, without other
//!   messages between them; images that they cannot hold follow directly.
//! - A later system text stays at its position if the provider's template accepts
//!   that; otherwise it joins an adjacent user turn. It never moves to the front:
//!   that would change the prompt's prefix on every turn.
//! - Every tool call needs a result in the next user turn, or the request is refused.

use super::block::{Content, Part, Text, is_vendors, parts_of};
use super::said::{said, system_texts, tool_result, trim_last};
use super::speak;
use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::pending_tool_calls::PendingToolCalls;
use penstock_core::{ApiError, AttemptTarget};
use std::borrow::Cow;
use std::convert::Infallible;

/// Tool call of the assistant.
pub(super) struct Call<'a> {
    pub id: &'a [u8],
    pub name: &'a [u8],
    pub input: &'a [u8],
}

/// Result of a tool call.
pub(super) struct ToolResult<'a> {
    pub id: &'a [u8],
    pub parts: Vec<Part<'a>>,
    pub is_error: bool,
}

/// Turn of the user.
#[derive(Default)]
pub(super) struct User<'a> {
    pub results: Vec<ToolResult<'a>>,
    pub parts: Vec<Part<'a>>,
    /// System texts between the tool calls and their results.
    pub systems: Vec<Text<'a>>,
}

/// Turn of the assistant.
#[derive(Default)]
pub(super) struct Assistant<'a> {
    pub texts: Vec<Text<'a>>,
    pub reasoning: Vec<Text<'a>>,
    pub calls: Vec<Call<'a>>,
}

enum Turn<'a> {
    User(User<'a>),
    Assistant(Assistant<'a>),
}

/// Writer that outputs each turn when it is complete.
pub(super) struct Turns<'a> {
    target: AttemptTarget<'a>,
    /// System texts before the first turn; `None` once they are written.
    lead: Option<Vec<Text<'a>>>,
    turn: Option<Turn<'a>>,
    /// True if a message is written, so that the next one needs a comma.
    written: bool,
    /// Tool calls that have no result so far.
    waiting: PendingToolCalls<'a, ()>,
    /// Index of the message with those calls.
    asked_at: usize,
    /// System texts for the next user turn.
    carry: Vec<Text<'a>>,
}

impl<'a> Turns<'a> {
    /// Creates a writer; starts with the `system` member if there is one.
    ///
    /// # Errors
    /// Returns an error if the system prompt is neither a string nor text blocks.
    pub(super) fn new(target: &AttemptTarget<'a>, system: Option<&'a [u8]>) -> Result<Self, ApiError> {
        let mut lead = Vec::new();
        if let Some(system) = system {
            let system = Content::read(&mut JsonCursor::new(system));
            system_texts(&system, &|| "system".to_owned(), &mut lead)?;
        }
        Ok(Self {
            target: *target,
            lead: Some(lead),
            turn: None,
            written: false,
            waiting: PendingToolCalls::default(),
            asked_at: 0,
            carry: Vec::new(),
        })
    }

    /// Adds one element of `messages`.
    ///
    /// # Errors
    /// Returns an error with the path of a value that cannot be translated.
    pub(super) fn message(
        &mut self,
        index: usize,
        message: &mut JsonCursor<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let (mut role, mut content) = (Cow::Borrowed(""), None);
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match key {
                "role" => role = json_cursor::parse_string(value.take_value()).unwrap_or_default(),
                "content" => content = Some(Content::read(value)),
                _ => {}
            }
            Ok(())
        });
        let content = content.as_ref().ok_or_else(|| {
            ApiError::invalid(format!("messages.{index}.content"), "A message needs `content`.")
        })?;
        match &*role {
            "user" => self.user(index, content, out),
            "assistant" => self.assistant(index, content, out),
            "system" => self.system(index, content, out),
            _ => Err(ApiError::invalid(
                format!("messages.{index}.role"),
                "A role must be `user`, `assistant` or `system`.",
            )),
        }
    }

    /// Writes the open turn and ends the conversation. Returns true if the last turn is
    /// of the assistant, which the provider must continue.
    ///
    /// `delivered` is the text (inside of a JSON string) of the assistant's answer so far.
    ///
    /// # Errors
    /// Returns an error if tool calls have no results, or if there are no turns.
    pub(super) fn end(
        &mut self,
        delivered: Option<Text<'a>>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<bool, ApiError> {
        if !self.carry.is_empty() && !matches!(self.turn, Some(Turn::User(_))) && self.waiting.is_empty() {
            self.switch_to_user(out)?;
        }
        if let Some(Turn::Assistant(turn)) = &mut self.turn {
            if !turn.calls.is_empty() {
                return Err(self.without_results());
            }
            trim_last(&mut turn.texts);
        }
        if let Some(delivered) = delivered {
            self.switch_to_assistant(out)?.texts.push(delivered);
        }
        let prefill = matches!(self.turn, Some(Turn::Assistant(_)));
        if self.turn.is_none() && !self.written {
            return Err(ApiError::invalid("messages", "There must be at least one message with content."));
        }
        self.flush_as(prefill, out)?;
        Ok(prefill)
    }

    fn user(
        &mut self,
        index: usize,
        content: &Content<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let at = || format!("messages.{index}.content");
        let mut turn = User::default();
        if let Content::Blocks(blocks) = content {
            for (position, block) in blocks.iter().enumerate() {
                let at = || format!("messages.{index}.content.{position}");
                if block.kind == "tool_result" {
                    turn.results.push(tool_result(block, &at)?);
                } else {
                    block.parts(&at, &mut turn.parts)?;
                }
            }
        } else {
            parts_of(content, &at, &mut turn.parts)?;
        }
        if turn.results.is_empty() && turn.parts.is_empty() {
            return Err(nothing_said(content, at()));
        }
        self.switch_to_user(out)?;
        for result in &turn.results {
            if !self.waiting.remove_answered(result.id) {
                return Err(ApiError::invalid(
                    at(),
                    "A `tool_result` block needs a `tool_use` block with its id in the turn before.",
                ));
            }
        }
        if let Some(Turn::User(open)) = &mut self.turn {
            open.results.append(&mut turn.results);
            open.parts.append(&mut turn.parts);
        }
        Ok(())
    }

    fn assistant(
        &mut self,
        index: usize,
        content: &Content<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let mut turn = Assistant::default();
        match content {
            Content::Blocks(blocks) => {
                for (position, block) in blocks.iter().enumerate() {
                    said(block, &|| format!("messages.{index}.content.{position}"), &mut turn)?;
                }
            }
            Content::Text(text) => turn.texts.push(Cow::Borrowed(text)),
            Content::Other => {
                let at = format!("messages.{index}.content");
                return Err(ApiError::invalid(at, "Expected a string or a list of content blocks."));
            }
        }
        turn.texts.retain(|text| !text.is_empty());
        if self.target.replayed_reasoning_name().is_none() {
            turn.reasoning.clear();
        }
        if turn.texts.is_empty() && turn.calls.is_empty() && turn.reasoning.is_empty() {
            return Ok(());
        }
        if !turn.calls.is_empty() {
            self.asked_at = index;
        }
        let open = self.switch_to_assistant(out)?;
        if !open.texts.is_empty() && !turn.texts.is_empty() {
            open.texts.push(Cow::Borrowed(br"\n\n"));
        }
        open.texts.append(&mut turn.texts);
        open.reasoning.append(&mut turn.reasoning);
        open.calls.append(&mut turn.calls);
        Ok(())
    }

    fn system(
        &mut self,
        index: usize,
        content: &Content<'a>,
        out: &mut BodyBuilder<'_>,
    ) -> Result<(), ApiError> {
        let mut texts = Vec::new();
        system_texts(content, &|| format!("messages.{index}.content"), &mut texts)?;
        match (&mut self.lead, &mut self.turn) {
            (Some(lead), None) => lead.append(&mut texts),
            // No message is allowed between tool calls and their results.
            (_, Some(Turn::Assistant(turn))) if !turn.calls.is_empty() => self.carry.append(&mut texts),
            (_, Some(Turn::User(turn)))
                if self.target.capabilities.system_anywhere && !self.waiting.is_empty() =>
            {
                turn.systems.append(&mut texts);
            }
            _ if self.target.capabilities.system_anywhere => {
                self.flush(out)?;
                for text in texts {
                    speak::comma(out);
                    speak::system(&[text], out);
                }
            }
            // System texts from before the results wait for the end of the turn; this one must follow them.
            (_, Some(Turn::User(turn))) if turn.parts.is_empty() && !turn.systems.is_empty() => {
                turn.systems.append(&mut texts);
            }
            (_, Some(Turn::User(turn))) => fold(turn, texts),
            _ => self.carry.append(&mut texts),
        }
        Ok(())
    }

    /// Makes the open turn a user turn with the pending system texts.
    fn switch_to_user(&mut self, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
        if !matches!(self.turn, Some(Turn::User(_))) {
            self.flush(out)?;
            let turn = User { systems: std::mem::take(&mut self.carry), ..User::default() };
            self.turn = Some(Turn::User(turn));
        }
        Ok(())
    }

    fn switch_to_assistant(&mut self, out: &mut BodyBuilder<'_>) -> Result<&mut Assistant<'a>, ApiError> {
        if !matches!(self.turn, Some(Turn::Assistant(_))) {
            if !self.carry.is_empty() {
                self.switch_to_user(out)?;
            }
            self.flush(out)?;
        }
        match self.turn.get_or_insert_with(|| Turn::Assistant(Assistant::default())) {
            Turn::Assistant(turn) => Ok(turn),
            Turn::User(_) => Err(ApiError::new(penstock_core::ErrorCode::Internal)),
        }
    }

    fn flush(&mut self, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
        self.flush_as(false, out)
    }

    /// Writes the open turn.
    fn flush_as(&mut self, prefill: bool, out: &mut BodyBuilder<'_>) -> Result<(), ApiError> {
        let Some(turn) = self.turn.take() else {
            return Ok(());
        };
        if let Some(lead) = self.lead.take().filter(|lead| !lead.is_empty()) {
            speak::system(&lead, out);
            self.written = true;
        }
        if std::mem::replace(&mut self.written, true) {
            speak::comma(out);
        }
        match turn {
            Turn::User(mut turn) => {
                if !self.waiting.is_empty() {
                    return Err(self.without_results());
                }
                if !self.target.capabilities.system_anywhere {
                    let systems = std::mem::take(&mut turn.systems);
                    let (systems_first, rest) = (systems, std::mem::take(&mut turn.parts));
                    if rest.is_empty() {
                        fold(&mut turn, systems_first);
                    } else {
                        turn.parts = systems_first.into_iter().map(Part::Text).chain(rest).collect();
                    }
                }
                speak::user(turn, self.target.capabilities, out);
            }
            Turn::Assistant(turn) => {
                if !turn.calls.iter().all(|call| self.waiting.add_call(call.id, ())) {
                    return Err(ApiError::invalid(
                        format!("messages.{}.content", self.asked_at),
                        "Each `tool_use` block of a turn needs an id of its own.",
                    ));
                }
                speak::assistant(&turn, &self.target, prefill, out);
            }
        }
        Ok(())
    }

    fn without_results(&self) -> ApiError {
        ApiError::invalid(
            format!("messages.{}", self.asked_at),
            "Each `tool_use` block needs a `tool_result` block with its id in the next message.",
        )
    }
}

/// Returns the error of an empty user turn: without it, the turn before would be taken for a prefill.
fn nothing_said(content: &Content<'_>, at: String) -> ApiError {
    match content {
        Content::Blocks(blocks) if blocks.iter().any(|block| is_vendors(&block.kind)) => {
            ApiError::unsupported(at, "Nothing in this message can be read by this model.")
        }
        _ => ApiError::invalid(at, "The content of a user message must not be empty."),
    }
}

/// Adds system texts to the parts of a user turn, or to its last tool result if it has no parts.
fn fold<'a>(turn: &mut User<'a>, texts: Vec<Text<'a>>) {
    let home = match turn.results.last_mut() {
        Some(result) if turn.parts.is_empty() => &mut result.parts,
        _ => &mut turn.parts,
    };
    home.extend(texts.into_iter().map(Part::Text));
}
