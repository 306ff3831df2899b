//! Validation of the messages of a conversation.

use super::ChatFindings;
use super::calls::SeenToolCalls;
use super::part::{AllowedParts, validate_parts};
use crate::body::RootObject;
use crate::field_path::FieldPath;
use crate::read;
use penstock_core::{ApiError, CachePosition, HistoryFeatures};
use penstock_json_scan::tape::JsonValue;

const ROLES: &[&str] = &["system", "developer", "user", "assistant", "tool", "function"];

/// Validates `messages`, and records the edits that convert each message to a form that every engine accepts.
pub(super) fn validate_messages(
    messages: JsonValue<'_>,
    top: &RootObject<'_>,
    found: &mut ChatFindings,
) -> Result<(), ApiError> {
    let path = top.member_path("messages");
    if read::require_array(messages, &path)?.has_no_entries() {
        return Err(path.invalid_error("expected at least one message"));
    }
    let mut calls = SeenToolCalls::default();
    let mut last = LastMessage::default();
    for (index, message) in messages.items().enumerate() {
        last = self::validate_message(message, index, &path.item(index), &mut calls, found)?;
    }
    let path = top.member_path("continue_final_message");
    let continued = read::read_optional_bool(top.get("continue_final_message"), &path)?.unwrap_or(false);
    if continued && !last.assistant {
        return Err(path.invalid_error("expected the last message to be the assistant's"));
    }
    found.needs.prefill = last.assistant && (continued || last.prefix);
    Ok(())
}

/// Properties of the last message of a conversation.
#[derive(Clone, Copy, Default)]
struct LastMessage {
    assistant: bool,
    prefix: bool,
}

/// Members of a message that the validation reads.
struct ChatMessage<'d> {
    value: JsonValue<'d>,
    content: Option<JsonValue<'d>>,
    name: Option<JsonValue<'d>>,
    tool_calls: Option<JsonValue<'d>>,
    tool_call_id: Option<JsonValue<'d>>,
    function_call: Option<JsonValue<'d>>,
    refusal: Option<JsonValue<'d>>,
    /// Members `reasoning` and `reasoning_content`.
    reasoning: (Option<JsonValue<'d>>, Option<JsonValue<'d>>),
    /// Members `prefix` and `partial`, by which vendors mark a message as the beginning of the answer to generate.
    prefix: (Option<JsonValue<'d>>, Option<JsonValue<'d>>),
    audio: Option<JsonValue<'d>>,
    images: Option<JsonValue<'d>>,
}

fn validate_message<'d>(
    whole: JsonValue<'d>,
    index: usize,
    path: &FieldPath<'_>,
    calls: &mut SeenToolCalls<'d>,
    found: &mut ChatFindings,
) -> Result<LastMessage, ApiError> {
    let (message, role) = ChatMessage::read(whole, path)?;
    let role_path = path.member("role");
    let role = read::require_member(role, &role_path, read::QuotedAlternatives(ROLES))?;
    message.name.map(|name| read::require_string(name, &path.member("name"))).transpose()?;
    if message.images.is_some_and(|images| !images.has_no_entries()) {
        return Err(path
            .member("images")
            .unsupported_error("send images as parts of type \"image_url\" in `content`"));
    }
    let role_named = read::read_keyword(role, &role_path, ROLES)?;
    message.record_features(role_named, index, &mut found.history);
    message.read_cache_markers(index, found);
    match role_named {
        "developer" => {
            found.edits.replace(role.range(), r#""system""#);
            message.validate_content(path, AllowedParts::Text, found)?;
        }
        "system" => message.validate_content(path, AllowedParts::Text, found)?,
        "user" => message.validate_content(path, AllowedParts::TextAndMedia, found)?,
        "assistant" => return message.validate_assistant(path, calls, found),
        "tool" => {
            calls.check_result_id(message.tool_call_id, &path.member("tool_call_id"))?;
            message.validate_result(path, found)?;
            message.retain_members(&["role", "content", "name", "tool_call_id"], found);
        }
        _ => {
            let id = calls.legacy_result_id(message.name, &path.member("name"))?;
            found.edits.replace(role.range(), r#""tool""#);
            found.edits.prepend_members(whole, format!(r#""tool_call_id":"{id}","#));
            message.validate_result(path, found)?;
            message.retain_members(&["role", "content", "name"], found);
        }
    }
    Ok(LastMessage::default())
}

impl<'d> ChatMessage<'d> {
    /// Reads the members of a message, and its role.
    fn read(whole: JsonValue<'d>, path: &FieldPath<'_>) -> Result<(Self, Option<JsonValue<'d>>), ApiError> {
        let [
            role,
            content,
            name,
            tool_calls,
            tool_call_id,
            function_call,
            refusal,
            reasoning,
            thought,
            prefix,
            partial,
            audio,
            images,
        ] = read::read_named_members(
            whole,
            path,
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
                "partial",
                "audio",
                "images",
            ],
        )?;
        let reasoning = (reasoning, thought);
        let message = Self {
            value: whole,
            content,
            name,
            tool_calls,
            tool_call_id,
            function_call,
            refusal,
            reasoning,
            prefix: (prefix, partial),
            audio,
            images,
        };
        Ok((message, role))
    }

    /// Records the features of the message that some providers accept only in a converted form.
    fn record_features(&self, role: &str, index: usize, features: &mut HistoryFeatures) {
        features.late_system_messages |= index > 0 && matches!(role, "system" | "developer");
        features.results |= matches!(role, "tool" | "function");
        features.calls |=
            self.tool_calls.or(self.tool_call_id).or(self.function_call).is_some() || role == "function";
        features.reasoning |= self.reasoning.0.or(self.reasoning.1).is_some();
    }

    /// Reads the markers of the prompt cache at the message and its parts.
    fn read_cache_markers(&self, index: usize, found: &mut ChatFindings) {
        let parts = self.content.iter().filter(|content| content.is_array()).flat_map(JsonValue::items);
        for (part_index, part) in parts.enumerate() {
            found.cache_markers.read(part, CachePosition::Part(index, part_index));
        }
        found.cache_markers.read(self.value, CachePosition::Message(index));
    }

    /// Validates the content of a system or user message, which is required.
    fn validate_content(
        &self,
        message_path: &FieldPath<'_>,
        allowed: AllowedParts,
        found: &mut ChatFindings,
    ) -> Result<(), ApiError> {
        let path = message_path.member("content");
        let content = read::require_member(self.content, &path, "a string or an array of content parts")?;
        if content.is_array() && content.has_no_entries() {
            return Err(path.invalid_error("expected at least one content part"));
        }
        validate_parts(content, &path, allowed, found)?;
        self.retain_members(&["role", "content", "name"], found);
        Ok(())
    }

    /// Validates the content of a tool result; missing content becomes an empty string.
    fn validate_result(&self, path: &FieldPath<'_>, found: &mut ChatFindings) -> Result<(), ApiError> {
        match self.effective_content() {
            Some(content) => {
                validate_parts(content, &path.member("content"), AllowedParts::TextAndImages, found)
            }
            None => {
                self.set_content(r#""""#, found);
                Ok(())
            }
        }
    }

    /// Validates an earlier answer of the model, as sent back by various client libraries.
    fn validate_assistant(
        &self,
        path: &FieldPath<'_>,
        calls: &mut SeenToolCalls<'d>,
        found: &mut ChatFindings,
    ) -> Result<LastMessage, ApiError> {
        for (name, text) in [
            ("reasoning", self.reasoning.0),
            ("reasoning_content", self.reasoning.1),
            ("refusal", self.refusal),
        ] {
            text.map(|text| read::require_string(text, &path.member(name))).transpose()?;
        }
        self.content
            .map(|content| {
                validate_parts(content, &path.member("content"), AllowedParts::TextOrRefusal, found)
            })
            .transpose()?;
        let calls = self.validate_calls(path, calls, found)?;
        // The audio of an earlier answer is not forwarded, only its text in `content`. Without a text the message is
        // refused, because the answer would be missing from the conversation.
        if self.audio.is_some() && self.effective_content().is_none() && calls.is_none() {
            return Err(path
                .member("audio")
                .unsupported_error("the gateway stores no audio; send the text in `content`"));
        }
        if self.effective_content().is_none() {
            match self.refusal {
                _ if calls.is_some() => self.set_content("null", found),
                Some(refusal) => self.set_content(refusal.raw(), found),
                None => self.set_content(r#""""#, found),
            }
        }
        let calls = calls.unwrap_or("role");
        self.retain_members(&["role", "content", "name", calls, "reasoning_content", "reasoning"], found);
        let prefix = read::read_optional_bool(self.prefix.0, &path.member("prefix"))?.unwrap_or(false);
        let partial = read::read_optional_bool(self.prefix.1, &path.member("partial"))?.unwrap_or(false);
        Ok(LastMessage { assistant: true, prefix: prefix || partial })
    }

    /// Validates tool calls; returns the name of the member that holds them, or `None` if there are no calls.
    fn validate_calls(
        &self,
        path: &FieldPath<'_>,
        calls: &mut SeenToolCalls<'d>,
        found: &mut ChatFindings,
    ) -> Result<Option<&'static str>, ApiError> {
        if let Some(list) = self.tool_calls {
            calls.validate_tool_calls(list, &path.member("tool_calls"), found)?;
            if !list.has_no_entries() {
                return Ok(Some("tool_calls"));
            }
        }
        let Some(call) = self.function_call else { return Ok(None) };
        calls.convert_function_call(self.key("function_call"), call, &path.member("function_call"), found)?;
        Ok(Some("function_call"))
    }

    /// Returns the content of the message; `None` if it is absent, `null` or an empty array.
    fn effective_content(&self) -> Option<JsonValue<'d>> {
        self.content.filter(|content| !(content.is_array() && content.has_no_entries()))
    }

    /// Returns the key of a member, whose value may be `null`.
    fn key(&self, name: &str) -> Option<JsonValue<'d>> {
        self.value.members().find(|(key, _)| key.equals_text(name)).map(|(key, _)| key)
    }

    /// Sets the content of a message that has none.
    fn set_content(&self, json: &str, found: &mut ChatFindings) {
        match self.value.members().find(|(key, _)| key.equals_text("content")) {
            Some((_, value)) if value.raw() == json => {}
            Some((_, value)) => found.edits.replace(value.range(), json.to_owned()),
            None => found.edits.prepend_members(self.value, format!(r#""content":{json},"#)),
        }
    }

    /// Drops members that no engine expects: unknown ones, and `null` ones except the content.
    fn retain_members(&self, names: &[&str], found: &mut ChatFindings) {
        found.edits.retain_members(self.value, |key, value| {
            let key = key.text();
            names.iter().any(|name| *key == **name) && (!value.is_null() || key == "content")
        });
    }
}
