//! Validation of the messages of a conversation.

use super::Findings;
use super::calls::Calls;
use super::part::{Parts, parts};
use crate::body::Top;
use crate::json::Value;
use crate::path::Path;
use crate::read;
use penstock_contract::{Refusal, Said};

const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];

/// Validates `messages`; edits convert each message to a form that every engine accepts.
pub(super) fn messages(messages: Value<'_>, top: &Top<'_>, found: &mut Findings) -> Result<(), Refusal> {
    let path = top.path("messages");
    if read::array(messages, &path)?.is_hollow() {
        return Err(path.wrong("expected at least one message"));
    }
    let mut calls = Calls::default();
    let mut last = Last::default();
    for (index, message) in messages.items().enumerate() {
        last = self::message(message, index, &path.index(index), &mut calls, found)?;
    }
    let path = top.path("continue_final_message");
    let continued = read::flag(top.get("continue_final_message"), &path)?.unwrap_or(false);
    if continued && !last.assistant {
        return Err(path.wrong("expected the last message to be the assistant's"));
    }
    found.needs.prefill = last.assistant && (continued || last.prefix);
    Ok(())
}

/// Properties of the last message.
#[derive(Clone, Copy, Default)]
struct Last {
    assistant: bool,
    prefix: bool,
}

/// Members of a message that are read.
struct Message<'d> {
    whole: Value<'d>,
    content: Option<Value<'d>>,
    name: Option<Value<'d>>,
    tool_calls: Option<Value<'d>>,
    tool_call_id: Option<Value<'d>>,
    function_call: Option<Value<'d>>,
    refusal: Option<Value<'d>>,
    /// Members `reasoning` and `reasoning_content`.
    reasoning: (Option<Value<'d>>, Option<Value<'d>>),
    prefix: Option<Value<'d>>,
}

fn message<'d>(
    whole: Value<'d>,
    index: usize,
    at: &Path<'_>,
    calls: &mut Calls<'d>,
    found: &mut Findings,
) -> Result<Last, Refusal> {
    let [role, content, name, tool_calls, tool_call_id, function_call, refusal, reasoning, thought, prefix] =
        read::object(
            whole,
            at,
            [
                "role",
                "content",
                "name",
                "tool_calls",
                "tool_call_id",
                "function_call",
                "refusal",
                "reasoning",
                "reasoning_content",
                "prefix",
            ],
        )?;
    let role_path = at.key("role");
    let role = read::required(role, &role_path, read::Alternatives(ROLES))?;
    let reasoning = (reasoning, thought);
    let message =
        Message { whole, content, name, tool_calls, tool_call_id, function_call, refusal, reasoning, prefix };
    message.name.map(|name| read::string(name, &at.key("name"))).transpose()?;
    let role_named = read::one_of(role, &role_path, ROLES)?;
    message.note(role_named, index, &mut found.said);
    match role_named {
        "developer" => {
            found.edits.replace(role.range(), r#""system""#);
            message.said(at, Parts::Text, found)?;
        }
        "system" => message.said(at, Parts::Text, found)?,
        "user" => message.said(at, Parts::Media, found)?,
        "assistant" => return message.assistant(at, calls, found),
        "tool" => {
            calls.answered(message.tool_call_id, &at.key("tool_call_id"))?;
            message.result(at, found)?;
            message.keep(&["role", "content", "name", "tool_call_id"], found);
        }
        _ => {
            let id = calls.function_answered(message.name, &at.key("name"))?;
            found.edits.replace(role.range(), r#""tool""#);
            found.edits.prepend(whole, format!(r#""tool_call_id":"{id}","#));
            message.result(at, found)?;
            message.keep(&["role", "content", "name"], found);
        }
    }
    Ok(Last::default())
}

impl<'d> Message<'d> {
    /// Records features that some providers do not accept unchanged.
    fn note(&self, role: &str, index: usize, said: &mut Said) {
        said.later_system |= index > 0 && matches!(role, "system" | "developer");
        said.results |= matches!(role, "tool" | "function");
        said.calls |=
            self.tool_calls.or(self.tool_call_id).or(self.function_call).is_some() || role == "function";
        said.reasoning |= self.reasoning.0.or(self.reasoning.1).is_some();
    }

    /// Validates the content of a system or user message, which is required.
    fn said(&self, at: &Path<'_>, allowed: Parts, found: &mut Findings) -> Result<(), Refusal> {
        let path = at.key("content");
        let content = read::required(self.content, &path, "a string or an array of content parts")?;
        if content.is_array() && content.is_hollow() {
            return Err(path.wrong("expected at least one content part"));
        }
        parts(content, &path, allowed, found)?;
        self.keep(&["role", "content", "name"], found);
        Ok(())
    }

    /// Validates the content of a tool result; missing content becomes an empty string.
    fn result(&self, at: &Path<'_>, found: &mut Findings) -> Result<(), Refusal> {
        match self.substance() {
            Some(content) => parts(content, &at.key("content"), Parts::Pictures, found),
            None => {
                self.put_content(r#""""#, found);
                Ok(())
            }
        }
    }

    /// Validates an earlier answer of the model, as sent back by various client libraries.
    fn assistant(&self, at: &Path<'_>, calls: &mut Calls<'d>, found: &mut Findings) -> Result<Last, Refusal> {
        for (name, text) in [
            ("reasoning", self.reasoning.0),
            ("reasoning_content", self.reasoning.1),
            ("refusal", self.refusal),
        ] {
            text.map(|text| read::string(text, &at.key(name))).transpose()?;
        }
        self.content.map(|content| parts(content, &at.key("content"), Parts::Spoken, found)).transpose()?;
        let calls = self.called(at, calls, found)?;
        if self.substance().is_none() {
            match self.refusal {
                _ if calls.is_some() => self.put_content("null", found),
                Some(refusal) => self.put_content(refusal.raw(), found),
                None => self.put_content(r#""""#, found),
            }
        }
        let calls = calls.unwrap_or("role");
        self.keep(&["role", "content", "name", calls, "reasoning_content", "reasoning"], found);
        let prefix = read::flag(self.prefix, &at.key("prefix"))?.unwrap_or(false);
        Ok(Last { assistant: true, prefix })
    }

    /// Validates tool calls; returns the member that holds them, if there are any.
    fn called(
        &self,
        at: &Path<'_>,
        calls: &mut Calls<'d>,
        found: &mut Findings,
    ) -> Result<Option<&'static str>, Refusal> {
        if let Some(list) = self.tool_calls {
            calls.tool_calls(list, &at.key("tool_calls"), found)?;
            if !list.is_hollow() {
                return Ok(Some("tool_calls"));
            }
        }
        let Some(call) = self.function_call else { return Ok(None) };
        calls.function_call(self.key("function_call"), call, &at.key("function_call"), found)?;
        Ok(Some("function_call"))
    }

    /// Content, unless it is absent, `null` or an empty array.
    fn substance(&self) -> Option<Value<'d>> {
        self.content.filter(|content| !(content.is_array() && content.is_hollow()))
    }

    /// Key of a member, which may be `null`.
    fn key(&self, name: &str) -> Option<Value<'d>> {
        self.whole.members().find(|(key, _)| key.is(name)).map(|(key, _)| key)
    }

    /// Sets the content of a message that has none.
    fn put_content(&self, json: &str, found: &mut Findings) {
        match self.whole.members().find(|(key, _)| key.is("content")) {
            Some((_, value)) if value.raw() == json => {}
            Some((_, value)) => found.edits.replace(value.range(), json.to_owned()),
            None => found.edits.prepend(self.whole, format!(r#""content":{json},"#)),
        }
    }

    /// Drops members that no engine expects: unknown ones, and `null` ones except the content.
    fn keep(&self, names: &[&str], found: &mut Findings) {
        found.edits.keep_members(self.whole, |key, value| {
            let key = key.text();
            names.iter().any(|name| *key == **name) && (!value.is_null() || key == "content")
        });
    }
}
