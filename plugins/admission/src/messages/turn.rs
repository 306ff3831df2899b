//! Validation of the conversation: roles, turns, and tool results that answer tool calls.

use super::block::{self, Block, Place};
use super::{Findings, Purpose};
use crate::body::Top;
use crate::json::Value;
use crate::path::Path;
use crate::read;
use penstock_contract::Refusal;
use std::borrow::Cow;
use std::collections::HashSet;

const ROLES: &[&str] = &["user", "assistant", "system"];

/// Validates `messages`.
pub(super) fn messages(
    list: Value<'_>,
    top: &Top<'_>,
    purpose: Purpose,
    found: &mut Findings,
) -> Result<(), Refusal> {
    let path = top.path("messages");
    if read::array(list, &path)?.is_hollow() {
        return Err(path.wrong("expected at least one message"));
    }
    let mut turns = Turns::default();
    let mut last = "";
    for (index, message) in list.items().enumerate() {
        last = turns.message(message, index, &path, found)?;
    }
    if !(purpose == Purpose::Count && last == "assistant") {
        turns.all_answered(&path)?;
    }
    found.needs.prefill = last == "assistant";
    Ok(())
}

/// Tool calls without results. A turn of the user answers all calls of the preceding assistant turn; `system` messages
/// in between are ignored.
#[derive(Default)]
struct Turns<'d> {
    waiting: HashSet<Cow<'d, str>>,
    /// Index of the message with the last call.
    asked_in: usize,
    /// True if a user message has followed.
    user_spoke: bool,
}

impl<'d> Turns<'d> {
    /// Validates a message; returns its role.
    fn message(
        &mut self,
        message: Value<'d>,
        index: usize,
        list: &Path<'_>,
        found: &mut Findings,
    ) -> Result<&'static str, Refusal> {
        let at = &list.index(index);
        let [role, content] = read::object(message, at, ["role", "content"])?;
        let path = at.key("role");
        let role = read::one_of(read::required(role, &path, read::Alternatives(ROLES))?, &path, ROLES)?;
        let path = at.key("content");
        let content = read::required(content, &path, "a string or an array of content blocks")?;
        match role {
            "user" => self.user(content, &path, found)?,
            "assistant" => {
                if self.user_spoke {
                    self.all_answered(list)?;
                }
                self.user_spoke = false;
                self.assistant(content, &path, index, found)?;
            }
            _ => {
                found.said.later_system = true;
                block::texts(content, &path, found)?;
            }
        }
        Ok(role)
    }

    fn user(&mut self, content: Value<'d>, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
        self.user_spoke = true;
        if content.is_string() {
            return read::filled(content, at).map(|_| ());
        }
        let mut is_empty = true;
        for (index, block) in blocks(content, at)?.enumerate() {
            let path = at.index(index);
            match block::block(block, &path, Place::User, found)? {
                Block::Result(id) if !self.waiting.remove(&id.text()) => {
                    let sentence = "expected the id of a tool_use block of the assistant's turn before, \
                                    each answered once";
                    return Err(path.key("tool_use_id").wrong(sentence));
                }
                Block::Nothing => {}
                _ => is_empty = false,
            }
        }
        if is_empty { Err(at.wrong("expected content that is not empty")) } else { Ok(()) }
    }

    /// Validates an assistant message, which may be empty: clients send back an empty answer.
    fn assistant(
        &mut self,
        content: Value<'d>,
        at: &Path<'_>,
        message: usize,
        found: &mut Findings,
    ) -> Result<(), Refusal> {
        if content.is_string() {
            found.said.idle_text |= content.is_blank();
            return Ok(());
        }
        found.said.idle_text |= content.is_hollow();
        for (index, block) in blocks(content, at)?.enumerate() {
            let path = at.index(index);
            if let Block::Call(id) = block::block(block, &path, Place::Assistant, found)? {
                self.asked_in = message;
                if !self.waiting.insert(id.text()) {
                    return Err(path.key("id").wrong("expected a unique id for each tool_use block"));
                }
            }
        }
        Ok(())
    }

    fn all_answered(&self, list: &Path<'_>) -> Result<(), Refusal> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let sentence = "each tool_use block needs a tool_result block in the user's turn after it";
        Err(list.index(self.asked_in).wrong(sentence))
    }
}

fn blocks<'d>(
    content: Value<'d>,
    at: &Path<'_>,
) -> Result<impl Iterator<Item = Value<'d>> + use<'d>, Refusal> {
    if content.is_array() {
        return Ok(content.items());
    }
    Err(at.expected("a string or an array of content blocks", content.kind()))
}
