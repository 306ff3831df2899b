//! Parser of native messages requests.

use super::constraint::constrained_format;
use super::{AnswerFormat, ParsedRequest, RequestError, role, split_suffix, text_content};
use crate::prompt::PrefixCache;
use crate::tools::{DeclaredTool, ToolChoice};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct MessagesBody {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    system: Option<Value>,
    max_tokens: Option<usize>,
    stream: Option<bool>,
    stop_sequences: Option<Vec<String>>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    thinking: Option<Value>,
    output_config: Option<Value>,
    /// All other members, such as the constraints of engines.
    #[serde(flatten)]
    others: Map<String, Value>,
}

pub(super) fn read(body: &[u8], memory: &PrefixCache, counts: bool) -> Result<ParsedRequest, RequestError> {
    let body: MessagesBody = serde_json::from_slice(body)?;
    let required = |field: &'static str| RequestError {
        message: format!("{field}: Field required"),
        field: Some(field),
    };
    let (model, suffix) = split_suffix(body.model.as_deref().ok_or_else(|| required("model"))?);
    let messages =
        body.messages.as_deref().filter(|all| !all.is_empty()).ok_or_else(|| required("messages"))?;
    if body.max_tokens.is_none() && !counts {
        return Err(required("max_tokens"));
    }
    let tools = body.tools.as_deref().unwrap_or_default();
    let (last, before) = messages.split_last().ok_or_else(|| required("messages"))?;
    let begun = (role(last) == "assistant").then(|| text_content(last.get("content")));
    let prompt = if begun.is_some() { before } else { messages };
    let turns: Vec<&Value> = body.system.iter().chain(prompt).collect();
    let thinks = body.thinking.as_ref().and_then(|thinking| thinking.get("type")?.as_str());
    let choice_field = |name: &str| body.tool_choice.as_ref().and_then(|choice| choice.get(name));
    let schema = body.output_config.as_ref().and_then(|output| output.pointer("/format/schema"));
    let form = schema.cloned().map_or(AnswerFormat::Text, AnswerFormat::Schema);
    let form = constrained_format(form, |name| body.others.get(name))?;
    Ok(ParsedRequest {
        model,
        suffix,
        stream: body.stream.unwrap_or(false),
        usage: true,
        n: 1,
        max_tokens: body.max_tokens,
        stops: body.stop_sequences.unwrap_or_default(),
        reasoning: matches!(thinks, Some("enabled" | "adaptive")),
        form,
        tools: tools.iter().filter_map(tool).collect(),
        choice: match choice_field("type").and_then(Value::as_str) {
            Some("none") => ToolChoice::None,
            Some("any") => ToolChoice::Required,
            Some("tool") => choice_field("name")
                .and_then(Value::as_str)
                .map_or(ToolChoice::Required, |name| ToolChoice::Named(name.to_owned())),
            _ => ToolChoice::Auto,
        },
        parallel: !choice_field("disable_parallel_tool_use").and_then(Value::as_bool).unwrap_or(false),
        asked: prompt
            .last()
            .filter(|turn| role(turn) == "user")
            .map_or_else(String::new, |turn| text_content(turn.get("content"))),
        prefill: begun,
        prompt: memory.measure(tools, &turns),
        ..ParsedRequest::default()
    })
}

fn tool(declared: &Value) -> Option<DeclaredTool> {
    Some(DeclaredTool {
        name: declared.get("name")?.as_str()?.to_owned(),
        schema: declared.get("input_schema").cloned().unwrap_or(Value::Null),
    })
}
