//! Parser of the prompt of a chat completions body.

use super::read::{
    PromptParseError, estimate_value_bytes, into_object, parse_body, take_list, take_member, take_text,
    take_type,
};
use super::{
    FunctionCall, FunctionTool, PromptConversation, PromptEffort, PromptMessage, PromptPart, SpeakerRole,
};
use crate::image::PromptImage;
use serde_json::{Map, Value};

/// Parses the body of a chat completions request.
pub(super) fn parse_conversation(bytes: &[u8]) -> Result<PromptConversation, PromptParseError> {
    let mut body = parse_body(bytes)?;
    let mut turns = Vec::new();
    for (at, message) in take_list(&mut body, "messages", "")?.into_iter().enumerate() {
        turns.push(read_message(message, &format!("messages[{at}]"))?);
    }
    let mut tools = Vec::new();
    for (at, tool) in take_list(&mut body, "tools", "")?.into_iter().enumerate() {
        let path = format!("tools[{at}]");
        let mut outer = into_object(tool, &path)?;
        let inner = take_member(&mut outer, "function").unwrap_or_default();
        tools.push(read_function(inner, &format!("{path}.function"))?);
    }
    for (at, tool) in take_list(&mut body, "functions", "")?.into_iter().enumerate() {
        tools.push(read_function(tool, &format!("functions[{at}]"))?);
    }
    let effort = match take_member(&mut body, "reasoning_effort") {
        Some(Value::String(name)) => PromptEffort::parse(&name),
        _ => None,
    };
    let arguments = match take_member(&mut body, "chat_template_kwargs") {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let continues = take_member(&mut body, "continue_final_message") == Some(Value::Bool(true))
        && turns.last().is_some_and(|turn: &PromptMessage| turn.role == SpeakerRole::Assistant);
    Ok(PromptConversation {
        messages: turns,
        tools,
        effort,
        template_arguments: arguments,
        continues,
        unix_seconds: 0,
    })
}

fn read_message(message: Value, path: &str) -> Result<PromptMessage, PromptParseError> {
    let mut map = into_object(message, path)?;
    let role = match take_text(&mut map, "role", path)?.as_deref() {
        Some("system" | "developer") => SpeakerRole::System,
        Some("user") => SpeakerRole::User,
        Some("assistant") => SpeakerRole::Assistant,
        Some("tool" | "function") => SpeakerRole::Tool,
        _ => {
            return Err(PromptParseError::new(
                format!("{path}.role"),
                "must be system, developer, user, assistant or tool",
            ));
        }
    };
    let (mut parts, listed) = content(take_member(&mut map, "content"), &format!("{path}.content"))?;
    if let Some(refusal) = take_text(&mut map, "refusal", path)?.filter(|text| !text.is_empty()) {
        parts.push(PromptPart::Text(refusal));
    }
    let mut calls = Vec::new();
    for (at, call) in take_list(&mut map, "tool_calls", path)?.into_iter().enumerate() {
        let path = format!("{path}.tool_calls[{at}]");
        let mut outer = into_object(call, &path)?;
        let id = take_text(&mut outer, "id", &path)?.unwrap_or_default();
        let function = take_member(&mut outer, "function").unwrap_or_default();
        calls.push(read_call(function, id, &format!("{path}.function"))?);
    }
    if let Some(call) = take_member(&mut map, "function_call") {
        calls.push(read_call(call, String::new(), &format!("{path}.function_call"))?);
    }
    // Providers receive the first of these members that has a text.
    let mut take_reasoning = |name| match take_member(&mut map, name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let reasoning = take_reasoning("reasoning_content").or_else(|| take_reasoning("reasoning"));
    let answers = take_text(&mut map, "tool_call_id", path)?;
    let name = take_text(&mut map, "name", path)?;
    Ok(PromptMessage { role, parts, has_part_list: listed, reasoning, calls, call_id: answers, name })
}

/// Reads the object with the name and the arguments of a call; `path` is the path of this object.
fn read_call(value: Value, id: String, path: &str) -> Result<FunctionCall, PromptParseError> {
    let mut map = into_object(value, path)?;
    let name = take_text(&mut map, "name", path)?.unwrap_or_default();
    let arguments = match take_member(&mut map, "arguments") {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    Ok(FunctionCall { id, name, arguments })
}

fn read_function(value: Value, path: &str) -> Result<FunctionTool, PromptParseError> {
    let mut map = into_object(value, path)?;
    let name = take_text(&mut map, "name", path)?
        .ok_or_else(|| PromptParseError::new(format!("{path}.name"), "is missing"))?;
    let description = take_text(&mut map, "description", path)?;
    let parameters = take_member(&mut map, "parameters");
    let strict = take_member(&mut map, "strict").and_then(|value| value.as_bool());
    Ok(FunctionTool { name, description, parameters, strict })
}

fn content(value: Option<Value>, path: &str) -> Result<(Vec<PromptPart>, bool), PromptParseError> {
    match value {
        None => Ok((Vec::new(), false)),
        Some(Value::String(text)) => Ok((vec![PromptPart::Text(text)], false)),
        Some(Value::Array(list)) => {
            let parts =
                list.into_iter().enumerate().map(|(at, value)| read_part(value, &format!("{path}[{at}]")));
            Ok((parts.collect::<Result<_, _>>()?, true))
        }
        Some(_) => Err(PromptParseError::new(path, "must be a string or a list of parts")),
    }
}

fn read_part(value: Value, path: &str) -> Result<PromptPart, PromptParseError> {
    if let Value::String(text) = value {
        return Ok(PromptPart::Text(text));
    }
    let mut map = into_object(value, path)?;
    let kind = take_type(&mut map, path)?;
    match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            Ok(PromptPart::Text(take_text(&mut map, "text", path)?.unwrap_or_default()))
        }
        "refusal" => Ok(PromptPart::Text(take_text(&mut map, "refusal", path)?.unwrap_or_default())),
        "image_url" => {
            let path = format!("{path}.image_url");
            let url = match take_member(&mut map, "image_url") {
                Some(Value::String(url)) => Some(url),
                Some(Value::Object(mut inner)) => take_text(&mut inner, "url", &path)?,
                _ => None,
            };
            let url = url.ok_or_else(|| PromptParseError::new(format!("{path}.url"), "is missing"))?;
            Ok(PromptPart::Image(PromptImage::from_url(&url)))
        }
        _ => Ok(PromptPart::Opaque { bytes: estimate_value_bytes(&Value::Object(map)), kind }),
    }
}
