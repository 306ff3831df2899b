//! Validation of the conversation: roles, turns, and tool results that answer tool calls.

use super::block::{self, BlockContext, ParsedBlock};
use super::{MessagesFindings, MessagesPurpose, settings};
use crate::body::RootObject;
use crate::field_path::FieldPath;
use crate::read;
use penstock_core::ApiError;
use penstock_json_scan::tape::JsonValue;
use std::borrow::Cow;
use std::collections::HashSet;

const ROLES: &[&str] = &["user", "assistant", "system"];

/// Validates `messages`.
pub(super) fn validate_messages(
    list: JsonValue<'_>,
    top: &RootObject<'_>,
    purpose: MessagesPurpose,
    found: &mut MessagesFindings,
) -> Result<(), ApiError> {
    let path = top.member_path("messages");
    if read::require_array(list, &path)?.has_no_entries() {
        return Err(path.invalid_error("expected at least one message"));
    }
    let mut turns = ToolUseTracker::default();
    let mut last = "";
    for (index, message) in list.items().enumerate() {
        last = turns.validate_message(message, index, &path, found)?;
    }
    if !turns.has_turn {
        return Err(path.invalid_error("expected at least one message of the user or the assistant"));
    }
    if !(purpose == MessagesPurpose::Count && last == "assistant") {
        turns.check_all_answered(&path)?;
    }
    found.needs.prefill = last == "assistant";
    Ok(())
}

/// Tracker of the tool calls without results. A turn of the user answers all calls of the preceding assistant turn;
/// `system` messages between the two turns are ignored.
#[derive(Default)]
struct ToolUseTracker<'d> {
    /// Ids of the tool calls that have no result yet.
    unanswered_calls: HashSet<Cow<'d, str>>,
    /// Index of the message with the last call.
    last_call_message: usize,
    /// True if a user message has followed the last assistant message.
    has_user_reply: bool,
    /// True if there is a message of another role than `system`.
    has_turn: bool,
    /// True if a system message is hidden from the model by the next user message.
    has_clearable_system: bool,
}

/// Members of a message other than `role`.
struct MessageMembers<'d> {
    content: Option<JsonValue<'d>>,
    clear_at: Option<JsonValue<'d>>,
    output_config: Option<JsonValue<'d>>,
}

impl<'d> ToolUseTracker<'d> {
    /// Validates a message; returns its role.
    fn validate_message(
        &mut self,
        message: JsonValue<'d>,
        index: usize,
        list: &FieldPath<'_>,
        found: &mut MessagesFindings,
    ) -> Result<&'static str, ApiError> {
        let message_path = &list.item(index);
        let names = ["role", "content", "clear_at", "output_config"];
        let [role, content, clear_at, output_config] =
            read::read_named_members(message, message_path, names)?;
        let path = message_path.member("role");
        let role = read::read_keyword(
            read::require_member(role, &path, read::QuotedAlternatives(ROLES))?,
            &path,
            ROLES,
        )?;
        if role == "system" {
            let members = MessageMembers { content, clear_at, output_config };
            self.validate_system(&members, message_path, found)?;
            return Ok(role);
        }
        if clear_at.is_some() {
            return Err(message_path
                .member("clear_at")
                .invalid_error("only a message of the role \"system\" may have it"));
        }
        let path = message_path.member("content");
        let content = read::require_member(content, &path, "a string or an array of content blocks")?;
        self.has_turn = true;
        match role {
            "user" => {
                found.history.hidden_system_messages |= self.has_clearable_system;
                self.validate_user(content, &path, found)?;
            }
            _ => {
                if self.has_user_reply {
                    self.check_all_answered(list)?;
                }
                self.has_user_reply = false;
                self.validate_assistant(content, &path, index, found)?;
            }
        }
        Ok(role)
    }

    /// Validates a system message. The content may be absent if the message sets the effort.
    fn validate_system(
        &mut self,
        message: &MessageMembers<'d>,
        message_path: &FieldPath<'_>,
        found: &mut MessagesFindings,
    ) -> Result<(), ApiError> {
        found.history.late_system_messages = true;
        let path = message_path.member("output_config");
        let config = message.output_config.map(|config| settings::validate_message_config(config, &path));
        let sets_effort = config.transpose()?.unwrap_or(false);
        if let Some(clear_at) = message.clear_at {
            let words = &["next_user_message", "never"];
            let word = read::read_keyword(clear_at, &message_path.member("clear_at"), words)?;
            self.has_clearable_system |= word == "next_user_message";
        }
        let path = message_path.member("content");
        match message.content {
            None if sets_effort => Ok(()),
            content => {
                let content = read::require_member(content, &path, "a string or an array of text blocks")?;
                block::validate_texts(content, &path, found)
            }
        }
    }

    fn validate_user(
        &mut self,
        content: JsonValue<'d>,
        content_path: &FieldPath<'_>,
        found: &mut MessagesFindings,
    ) -> Result<(), ApiError> {
        self.has_user_reply = true;
        if content.is_string() {
            return read::require_non_empty_string(content, content_path).map(|_| ());
        }
        let mut is_empty = true;
        for (index, block) in blocks(content, content_path)?.enumerate() {
            let path = content_path.item(index);
            match block::validate_block(block, &path, BlockContext::User, found)? {
                ParsedBlock::ToolResult(id) if !self.unanswered_calls.remove(&id.text()) => {
                    let sentence = "expected the id of a tool_use block of the assistant's turn before, \
                                    each answered once";
                    return Err(path.member("tool_use_id").invalid_error(sentence));
                }
                ParsedBlock::Empty => {}
                _ => is_empty = false,
            }
        }
        if is_empty { Err(content_path.invalid_error("expected content that is not empty")) } else { Ok(()) }
    }

    /// Validates an assistant message. The message may be empty, because clients also send back empty answers.
    fn validate_assistant(
        &mut self,
        content: JsonValue<'d>,
        content_path: &FieldPath<'_>,
        message: usize,
        found: &mut MessagesFindings,
    ) -> Result<(), ApiError> {
        if content.is_string() {
            found.history.removable_text |= content.is_blank();
            return Ok(());
        }
        found.history.removable_text |= content.has_no_entries();
        for (index, block) in blocks(content, content_path)?.enumerate() {
            let path = content_path.item(index);
            if let ParsedBlock::ToolUse(id) =
                block::validate_block(block, &path, BlockContext::Assistant, found)?
            {
                self.last_call_message = message;
                if !self.unanswered_calls.insert(id.text()) {
                    return Err(path
                        .member("id")
                        .invalid_error("expected an id of its own for each tool_use block"));
                }
            }
        }
        Ok(())
    }

    fn check_all_answered(&self, list: &FieldPath<'_>) -> Result<(), ApiError> {
        if self.unanswered_calls.is_empty() {
            return Ok(());
        }
        let sentence = "each tool_use block needs a tool_result block in the user's turn after it";
        Err(list.item(self.last_call_message).invalid_error(sentence))
    }
}

fn blocks<'d>(
    content: JsonValue<'d>,
    path: &FieldPath<'_>,
) -> Result<impl Iterator<Item = JsonValue<'d>> + use<'d>, ApiError> {
    if content.is_array() {
        return Ok(content.items());
    }
    Err(path.unexpected_type_error("a string or an array of content blocks", content.kind()))
}
