//! Conversation builder: converts chat messages to turns of user and assistant.
//!
//! Tool messages and the user message after them become one user turn, results
//! first. System texts at the beginning become the system prompt. Later ones stay
//! at their position if the provider accepts that; otherwise they join the user
//! turn at that position, marked as not from the user. Users with different names
//! get separate turns that begin with the name. Every tool call needs a result in
//! the next user turn, or the request is refused.

use super::parts::{Block, blocks, push_text, write_content};
use crate::body_builder::BodyBuilder;
use crate::json_cursor::{self, JsonCursor};
use crate::pending_tool_calls::PendingToolCalls;
use penstock_core::{ApiError, OfferCapabilities};
use penstock_http_wire::json;
use std::borrow::Cow;
use std::convert::Infallible;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
    System,
}

struct Turn<'a> {
    role: Role,
    /// Name of the user, the inside of a JSON string.
    speaker: Option<&'a [u8]>,
    /// Tool results, which go before the blocks.
    results: Vec<Block<'a>>,
    blocks: Vec<Block<'a>>,
}

impl<'a> Turn<'a> {
    /// Adds the user's name to the first text.
    fn introduce(&mut self) {
        let Some(name) = self.speaker else { return };
        match self.blocks.iter_mut().find(|block| matches!(block, Block::Text(_))) {
            Some(block) => {
                if let Block::Text(text) = *block {
                    *block = Block::Named { name, text };
                }
            }
            None => self.blocks.insert(0, Block::Named { name, text: b"" }),
        }
    }

    fn whole(&mut self) {
        if !self.results.is_empty() {
            self.results.append(&mut self.blocks);
            self.blocks = std::mem::take(&mut self.results);
        }
    }
}

/// Turns of a request.
pub(super) struct Turns<'a> {
    abilities: &'a OfferCapabilities,
    system: Vec<Block<'a>>,
    turns: Vec<Turn<'a>>,
    /// Tool calls without a result so far, with their paths.
    waiting: PendingToolCalls<'a, String>,
    /// Call id that the next legacy `function` message answers.
    function: &'a [u8],
}

impl<'a> Turns<'a> {
    /// Parses `messages`.
    ///
    /// # Errors
    /// Returns an error with the path of a value that cannot be translated.
    pub(super) fn read(messages: &'a [u8], abilities: &'a OfferCapabilities) -> Result<Self, ApiError> {
        let mut turns = Self {
            abilities,
            system: Vec::new(),
            turns: Vec::new(),
            waiting: PendingToolCalls::default(),
            function: b"call_function",
        };
        JsonCursor::new(messages)
            .visit_elements(|index, message| turns.message(index, &Seen::read(message)))?;
        turns.all_answered()?;
        if turns.have_speakers() {
            turns.turns.iter_mut().for_each(Turn::introduce);
        }
        turns.turns.iter_mut().for_each(Turn::whole);
        if turns.turns.is_empty() {
            return Err(ApiError::invalid("messages", "There must be at least one message with content."));
        }
        Ok(turns)
    }

    /// Appends the text of the assistant's answer so far.
    pub(super) fn said(&mut self, delivered: &str) {
        self.turn(Role::Assistant).push(Block::Own(delivered.to_owned()));
    }

    /// Writes `"system":…,"messages":…`.
    pub(super) fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.system.is_empty() {
            out.push_str(r#""system":"#);
            write_content(&self.system, out);
            out.push_byte(b',');
        }
        out.push_str(r#""messages":["#);
        for (at, turn) in self.turns.iter().enumerate() {
            out.push_str(if at == 0 { r#"{"role":""# } else { r#",{"role":""# });
            out.push_str(match turn.role {
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::System => "system",
            });
            out.push_str(r#"","content":"#);
            write_content(&turn.blocks, out);
            out.push_byte(b'}');
        }
        out.push_byte(b']');
    }

    /// Returns the blocks of the last turn if it has this role, or of a new turn.
    fn turn(&mut self, role: Role) -> &mut Vec<Block<'a>> {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(Turn { role, speaker: None, results: Vec::new(), blocks: Vec::new() });
        }
        let last = self.turns.len() - 1;
        match self.turns.get_mut(last) {
            Some(turn) => &mut turn.blocks,
            None => &mut self.system,
        }
    }

    fn message(&mut self, index: usize, seen: &Seen<'a>) -> Result<(), ApiError> {
        let at = format!("messages[{index}].content");
        let mut said = Vec::new();
        match &*seen.role {
            "system" | "developer" => {
                blocks(seen.content, &at, &mut said)?;
                self.system(said);
            }
            "user" => {
                blocks(seen.content, &at, &mut said)?;
                self.user(seen.name, said);
            }
            "assistant" => {
                let thought =
                    seen.reasoning.filter(|thought| self.abilities.replay_reasoning && !thought.is_empty());
                said.extend(thought.map(Block::Thinking));
                blocks(seen.content, &at, &mut said)?;
                push_text(seen.refusal.unwrap_or_default(), &mut said);
                if !said.is_empty() || seen.calls() {
                    self.speaks_again()?;
                }
                self.calls(index, seen, &mut said)?;
                self.add(Role::Assistant, said);
            }
            "tool" | "function" => {
                let id = seen.tool_call_id.unwrap_or(self.function);
                if !self.waiting.remove_answered(id) {
                    return Err(unasked(index));
                }
                blocks(seen.content, &at, &mut said)?;
                self.result(Block::ToolResult { id, content: said });
            }
            _ => return Err(ApiError::invalid(format!("messages[{index}].role"), "This role is not known.")),
        }
        Ok(())
    }

    /// Adds blocks of a user to the last turn, or to a new turn if the last is of another user.
    fn user(&mut self, name: Option<&'a [u8]>, mut said: Vec<Block<'a>>) {
        if said.is_empty() {
            return;
        }
        let speaks = |turn: &&mut Turn<'a>| {
            turn.role == Role::User && (turn.blocks.is_empty() || is_same(turn.speaker, name))
        };
        match self.turns.last_mut().filter(speaks) {
            Some(turn) => {
                turn.speaker = name;
                turn.blocks.append(&mut said);
            }
            None => {
                self.turns.push(Turn { role: Role::User, speaker: name, results: Vec::new(), blocks: said });
            }
        }
    }

    /// Returns true if the turns have users with different names.
    fn have_speakers(&self) -> bool {
        let mut names = self.turns.iter().filter_map(|turn| turn.speaker);
        names.next().is_some_and(|first| names.any(|name| !is_same(Some(first), Some(name))))
    }

    fn add(&mut self, role: Role, mut said: Vec<Block<'a>>) {
        if !said.is_empty() {
            self.turn(role).append(&mut said);
        }
    }

    /// Adds a tool result after the other results of the user turn and before its other blocks.
    fn result(&mut self, result: Block<'a>) {
        self.turn(Role::User);
        if let Some(turn) = self.turns.last_mut() {
            turn.results.push(result);
        }
    }

    fn system(&mut self, said: Vec<Block<'a>>) {
        if self.turns.is_empty() {
            self.system.extend(said);
        } else if self.abilities.system_anywhere && self.waiting.is_empty() {
            self.add(Role::System, said);
        } else {
            let folded = |block| match block {
                Block::Text(text) => Block::Folded(text),
                other => other,
            };
            self.add(Role::User, said.into_iter().map(folded).collect());
        }
    }

    /// Checks that all calls are answered, unless the assistant's last turn continues.
    fn speaks_again(&self) -> Result<(), ApiError> {
        match self.turns.last() {
            Some(turn) if turn.role == Role::Assistant => Ok(()),
            _ => self.all_answered(),
        }
    }

    fn all_answered(&self) -> Result<(), ApiError> {
        match self.waiting.first_pending() {
            None => Ok(()),
            Some(at) => Err(ApiError::invalid(
                at.as_str(),
                "With this model's provider each tool call needs a `tool` message with its id before the \
                 assistant's next message.",
            )),
        }
    }

    fn asked(&mut self, id: &'a [u8], at: impl Fn() -> String) -> Result<(), ApiError> {
        if self.waiting.add_call(id, at()) {
            return Ok(());
        }
        let why = "With this model's provider each tool call of a turn needs an id of its own.";
        Err(ApiError::invalid(format!("{}.id", at()), why))
    }

    fn calls(&mut self, index: usize, seen: &Seen<'a>, said: &mut Vec<Block<'a>>) -> Result<(), ApiError> {
        for (position, call) in seen.tool_calls.iter().enumerate() {
            let id = call.id.ok_or_else(|| {
                let at = format!("messages[{index}].tool_calls[{position}].id");
                ApiError::invalid(at, "A tool call needs a string `id`.")
            })?;
            let at = || format!("messages[{index}].tool_calls[{position}].function");
            said.push(call.function.tool_use(id, at)?);
            self.asked(id, || format!("messages[{index}].tool_calls[{position}]"))?;
        }
        if let Some(function) = &seen.function_call {
            self.function = b"call_function";
            said.push(function.tool_use(self.function, || format!("messages[{index}].function_call"))?);
            self.asked(self.function, || format!("messages[{index}].function_call"))?;
        }
        Ok(())
    }
}

/// Returns true if two names, insides of JSON strings, are equal after unescaping.
fn is_same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    one == other || one.zip(other).is_some_and(|(one, other)| json::unescape(one) == json::unescape(other))
}

fn unasked(index: usize) -> ApiError {
    ApiError::invalid(
        format!("messages[{index}].tool_call_id"),
        "With this model's provider a result needs a tool call with its id in the assistant's turn before it, \
         each answered once.",
    )
}

/// Members of a message that are translated.
#[derive(Default)]
struct Seen<'a> {
    role: Cow<'a, str>,
    content: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    reasoning: Option<&'a [u8]>,
    refusal: Option<&'a [u8]>,
    tool_calls: Vec<Call<'a>>,
    function_call: Option<Function<'a>>,
    tool_call_id: Option<&'a [u8]>,
}

impl<'a> Seen<'a> {
    fn calls(&self) -> bool {
        !self.tool_calls.is_empty() || self.function_call.is_some()
    }

    fn read(message: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = message.visit_members::<Infallible>(|key, value| {
            match (key, value.peek_byte()) {
                ("tool_calls", Some(b'[')) => {
                    return value.visit_elements(|_, call| {
                        seen.tool_calls.push(Call::read(call));
                        Ok(())
                    });
                }
                ("function_call", Some(b'{')) => {
                    seen.function_call = Some(Function::read(value));
                    return Ok(());
                }
                _ => {}
            }
            let value = value.take_value();
            match key {
                _ if json_cursor::is_null(value) => {}
                "role" => seen.role = json_cursor::parse_string(value).unwrap_or_default(),
                "content" => seen.content = Some(value),
                "name" => {
                    seen.name = json_cursor::string_body(value).filter(|name| !json_cursor::is_blank(name))
                }
                "reasoning_content" => seen.reasoning = json_cursor::string_body(value),
                "reasoning" => seen.reasoning = seen.reasoning.or(json_cursor::string_body(value)),
                "refusal" => seen.refusal = json_cursor::string_body(value),
                "tool_call_id" => seen.tool_call_id = json_cursor::string_body(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

/// Element of `tool_calls`.
#[derive(Default)]
struct Call<'a> {
    id: Option<&'a [u8]>,
    function: Function<'a>,
}

impl<'a> Call<'a> {
    fn read(call: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = call.visit_members::<Infallible>(|key, value| {
            match key {
                "id" => seen.id = json_cursor::string_body(value.take_value()),
                "function" => seen.function = Function::read(value),
                _ => {}
            }
            Ok(())
        });
        seen
    }
}

/// Called function: name and arguments as insides of JSON strings.
#[derive(Default)]
struct Function<'a> {
    name: Option<&'a [u8]>,
    arguments: Option<&'a [u8]>,
}

impl<'a> Function<'a> {
    fn read(function: &mut JsonCursor<'a>) -> Self {
        let mut seen = Self::default();
        let Ok(()) = function.visit_members::<Infallible>(|key, value| {
            match key {
                "name" => seen.name = json_cursor::string_body(value.take_value()),
                "arguments" => seen.arguments = json_cursor::string_body(value.take_value()),
                _ => {}
            }
            Ok(())
        });
        seen
    }

    /// Converts the call to a block; `at` is the function's path.
    fn tool_use(&self, id: &'a [u8], at: impl Fn() -> String) -> Result<Block<'a>, ApiError> {
        let name = self.name.ok_or_else(|| {
            ApiError::invalid(format!("{}.name", at()), "A function call needs a string `name`.")
        })?;
        let arguments = self.arguments.and_then(json::unescape).unwrap_or_default();
        let arguments = match arguments.trim() {
            "" => "{}".to_owned(),
            trimmed if trimmed.len() < arguments.len() => trimmed.to_owned(),
            _ => arguments.into_owned(),
        };
        let mut object = json::members(arguments.as_bytes());
        object.by_ref().for_each(drop);
        if !object.is_complete() {
            return Err(ApiError::invalid(
                format!("{}.arguments", at()),
                "The arguments of a call must be a JSON object.",
            ));
        }
        Ok(Block::ToolUse { id, name, arguments })
    }
}
