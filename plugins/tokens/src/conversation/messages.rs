//! Parser of the prompt of a messages body, in the form that a chat template gets.

use super::read::{
    PromptParseError, estimate_value_bytes, into_object, parse_body, take_list, take_member, take_text,
    take_type,
};
use super::{
    FunctionCall, FunctionTool, PromptConversation, PromptEffort, PromptMessage, PromptPart, SpeakerRole,
};
use crate::image::PromptImage;
use serde_json::{Map, Value};

/// Prefix of a block that coding agents send with every request and that models do not receive.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// Parses the body of a messages request.
pub(super) fn parse_conversation(bytes: &[u8]) -> Result<PromptConversation, PromptParseError> {
    let mut body = parse_body(bytes)?;
    let mut turns = Vec::new();
    if let Some(system) = system(take_member(&mut body, "system"), "system")? {
        turns.push(PromptMessage::from_text(SpeakerRole::System, system));
    }
    for (at, message) in take_list(&mut body, "messages", "")?.into_iter().enumerate() {
        push_messages(message, &format!("messages[{at}]"), &mut turns)?;
    }
    let mut tools = Vec::new();
    for (at, tool) in take_list(&mut body, "tools", "")?.into_iter().enumerate() {
        tools.push(function(tool, &format!("tools[{at}]"))?);
    }
    let continues =
        turns.last().is_some_and(|turn| turn.role == SpeakerRole::Assistant && turn.calls.is_empty());
    let mut arguments = Map::new();
    let effort = reasoning_effort(&mut body, &mut arguments);
    Ok(PromptConversation {
        messages: turns,
        tools,
        effort,
        template_arguments: arguments,
        continues,
        unix_seconds: 0,
    })
}

/// Returns the effort of `output_config.effort`, or else one that fits the thinking budget. If thinking is disabled,
/// adds the template variable that disables it.
fn reasoning_effort(
    body: &mut Map<String, Value>,
    arguments: &mut Map<String, Value>,
) -> Option<PromptEffort> {
    let thinking = take_member(body, "thinking").unwrap_or_default();
    if thinking.get("type").and_then(Value::as_str) == Some("disabled") {
        arguments.insert("enable_thinking".to_owned(), Value::Bool(false));
    }
    let config = take_member(body, "output_config").unwrap_or_default();
    if let Some(effort) = config.get("effort").and_then(Value::as_str).and_then(PromptEffort::parse) {
        return Some(effort);
    }
    thinking.get("budget_tokens").and_then(Value::as_u64).map(|budget| match budget {
        0..2_000 => PromptEffort::Low,
        2_000..8_000 => PromptEffort::Medium,
        _ => PromptEffort::High,
    })
}

fn system(value: Option<Value>, path: &str) -> Result<Option<String>, PromptParseError> {
    let texts = match value {
        None => return Ok(None),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => {
            let mut texts = Vec::new();
            for (at, block) in list.into_iter().enumerate() {
                let path = format!("{path}[{at}]");
                let mut map = into_object(block, &path)?;
                texts.push(take_text(&mut map, "text", &path)?.unwrap_or_default());
            }
            texts
        }
        Some(_) => return Err(PromptParseError::new(path, "must be a string or a list of text blocks")),
    };
    let parts: Vec<_> =
        texts.into_iter().filter(|text| !text.is_empty() && !text.starts_with(BILLING_HEADER)).collect();
    Ok((!parts.is_empty()).then(|| parts.join("\n\n")))
}

fn function(value: Value, path: &str) -> Result<FunctionTool, PromptParseError> {
    let mut map = into_object(value, path)?;
    let name = take_text(&mut map, "name", path)?
        .ok_or_else(|| PromptParseError::new(format!("{path}.name"), "is missing"))?;
    let description = take_text(&mut map, "description", path)?;
    let parameters = take_member(&mut map, "input_schema");
    let strict = take_member(&mut map, "strict").and_then(|value| value.as_bool());
    Ok(FunctionTool { name, description, parameters, strict })
}

/// Adds the tool results of a message, and then a message with its other content.
fn push_messages(message: Value, path: &str, turns: &mut Vec<PromptMessage>) -> Result<(), PromptParseError> {
    let mut map = into_object(message, path)?;
    let role = match take_text(&mut map, "role", path)?.as_deref() {
        Some("user") => SpeakerRole::User,
        Some("assistant") => SpeakerRole::Assistant,
        Some("system") => SpeakerRole::System,
        _ => return Err(PromptParseError::new(format!("{path}.role"), "must be user, assistant or system")),
    };
    let path = format!("{path}.content");
    let content = take_member(&mut map, "content");
    if role == SpeakerRole::System {
        turns.extend(system(content, &path)?.map(|text| PromptMessage::from_text(SpeakerRole::System, text)));
        return Ok(());
    }
    let mut rest = PromptMessage { role, ..PromptMessage::default() };
    match content {
        None => {}
        Some(Value::String(text)) => rest.parts.push(PromptPart::Text(text)),
        Some(Value::Array(list)) => {
            for (at, block) in list.into_iter().enumerate() {
                read_block(block, &format!("{path}[{at}]"), &mut rest, turns)?;
            }
        }
        Some(_) => return Err(PromptParseError::new(path, "must be a string or a list of blocks")),
    }
    let only_text = rest.parts.iter().all(|part| matches!(part, PromptPart::Text(_)));
    // Chat providers receive the texts of the assistant as one string.
    if role == SpeakerRole::Assistant && only_text && rest.parts.len() > 1 {
        rest.parts = vec![PromptPart::Text(rest.join_texts(""))];
    }
    rest.has_part_list = rest.parts.len() > 1 || !only_text;
    if rest.parts.is_empty() && rest.calls.is_empty() && rest.reasoning.is_none() {
        return Ok(());
    }
    merge_message(turns, rest);
    Ok(())
}

/// Adds a message, merged with the last one if both have the same role, as the gateway does for chat providers. The
/// parts of a user stay separate.
fn merge_message(turns: &mut Vec<PromptMessage>, turn: PromptMessage) {
    match turns.last_mut() {
        Some(last) if last.role == turn.role && turn.role == SpeakerRole::Assistant => {
            last.append_message(turn)
        }
        Some(last) if last.role == turn.role => {
            last.parts.extend(turn.parts);
            last.has_part_list = last.has_part_list || turn.has_part_list || last.parts.len() > 1;
            last.calls.extend(turn.calls);
            last.append_reasoning(turn.reasoning);
        }
        _ => turns.push(turn),
    }
}

fn read_block(
    block: Value,
    path: &str,
    rest: &mut PromptMessage,
    turns: &mut Vec<PromptMessage>,
) -> Result<(), PromptParseError> {
    let mut map = into_object(block, path)?;
    let kind = take_type(&mut map, path)?;
    match kind.as_str() {
        "tool_use" => rest.calls.push(FunctionCall {
            id: take_text(&mut map, "id", path)?.unwrap_or_default(),
            name: take_text(&mut map, "name", path)?.unwrap_or_default(),
            arguments: take_member(&mut map, "input")
                .map_or_else(|| "{}".to_owned(), |input| input.to_string()),
        }),
        "tool_result" => turns.push(tool_result(map, path)?),
        "thinking" => rest.append_reasoning(take_text(&mut map, "thinking", path)?),
        "redacted_thinking" => {}
        _ => block_parts(kind, map, path, &mut rest.parts)?,
    }
    Ok(())
}

fn tool_result(mut map: Map<String, Value>, path: &str) -> Result<PromptMessage, PromptParseError> {
    let mut parts = Vec::new();
    match take_member(&mut map, "content") {
        None => {}
        Some(Value::String(text)) => parts.push(PromptPart::Text(text)),
        Some(Value::Array(list)) => {
            for (at, block) in list.into_iter().enumerate() {
                let path = format!("{path}.content[{at}]");
                let mut inner = into_object(block, &path)?;
                let kind = take_type(&mut inner, &path)?;
                block_parts(kind, inner, &path, &mut parts)?;
            }
        }
        Some(_) => {
            return Err(PromptParseError::new(
                format!("{path}.content"),
                "must be a string or a list of blocks",
            ));
        }
    }
    let failed = take_member(&mut map, "is_error") == Some(Value::Bool(true));
    let says_so = |part: &PromptPart| matches!(part, PromptPart::Text(text) if text.starts_with("Error"));
    if failed && !parts.first().is_some_and(says_so) {
        match parts.first_mut() {
            Some(PromptPart::Text(text)) => text.insert_str(0, "Error: "),
            _ => parts.insert(0, PromptPart::Text("Error: ".to_owned())),
        }
    }
    // A result that has only texts becomes one text, joined by line ends.
    let only_text = parts.iter().all(|part| matches!(part, PromptPart::Text(_)));
    let mut turn = PromptMessage {
        role: SpeakerRole::Tool,
        parts,
        has_part_list: !only_text,
        ..PromptMessage::default()
    };
    if only_text {
        turn.parts = vec![PromptPart::Text(turn.join_texts("\n"))];
    }
    turn.call_id = take_text(&mut map, "tool_use_id", path)?;
    Ok(turn)
}

/// Adds a block to `parts`, as text, an image or opaque content. An empty text is dropped.
fn block_parts(
    kind: String,
    mut map: Map<String, Value>,
    path: &str,
    parts: &mut Vec<PromptPart>,
) -> Result<(), PromptParseError> {
    let text = match kind.as_str() {
        "text" => take_text(&mut map, "text", path)?.unwrap_or_default(),
        "image" => {
            parts.push(PromptPart::Image(source_image(take_member(&mut map, "source"), path)?));
            return Ok(());
        }
        "search_result" => {
            let mut lines = Vec::new();
            for name in ["title", "source"] {
                lines.extend(take_text(&mut map, name, path)?);
            }
            lines.extend(texts(take_member(&mut map, "content")));
            lines.join("\n")
        }
        "document" => match document(&mut map, path)? {
            Some(text) => text,
            None => {
                parts.push(PromptPart::Opaque { kind, bytes: estimate_value_bytes(&Value::Object(map)) });
                return Ok(());
            }
        },
        _ => {
            parts.push(PromptPart::Opaque { kind, bytes: estimate_value_bytes(&Value::Object(map)) });
            return Ok(());
        }
    };
    if !text.is_empty() {
        parts.push(PromptPart::Text(text));
    }
    Ok(())
}

fn source_image(source: Option<Value>, path: &str) -> Result<PromptImage, PromptParseError> {
    let path = format!("{path}.source");
    let mut map = into_object(source.unwrap_or_default(), &path)?;
    Ok(match (take_text(&mut map, "data", &path)?, take_text(&mut map, "url", &path)?) {
        (Some(data), _) => PromptImage::from_base64(&data),
        (None, Some(url)) => PromptImage::from_url(&url),
        (None, None) => PromptImage::with_unknown_size(),
    })
}

/// Returns the text of a document, with its title and its context, if given; `None` if the document is not text.
fn document(map: &mut Map<String, Value>, path: &str) -> Result<Option<String>, PromptParseError> {
    let Some(Value::Object(source)) = map.get("source") else { return Ok(None) };
    let text = match source.get("type").and_then(Value::as_str) {
        Some("text") => source.get("data").and_then(Value::as_str).map(str::to_owned),
        Some("content") => Some(texts(source.get("content").cloned()).join("\n")),
        _ => None,
    };
    let Some(text) = text else { return Ok(None) };
    let mut lines = Vec::new();
    for name in ["title", "context"] {
        lines.extend(take_text(map, name, path)?);
    }
    lines.push(text);
    Ok(Some(lines.join("\n")))
}

/// Returns the text of a string, or the texts of a list of text blocks.
fn texts(content: Option<Value>) -> Vec<String> {
    match content {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|block| block.get("text").and_then(Value::as_str))
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}
