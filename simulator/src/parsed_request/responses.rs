//! Parser of responses requests.

use super::constraint::constrained_format;
use super::{
    AnswerFormat, ParsedRequest, RequestError, reasons_by_default, role, split_suffix, text_content,
};
use crate::prompt::PrefixCache;
use crate::tools::{DeclaredTool, ToolChoice};
use serde::Deserialize;
use serde_json::{Value, json};

/// Members of other dialects, which the API that defined the responses dialect refuses as unknown.
const UNKNOWN: [&str; 6] = ["messages", "stop", "max_tokens", "n", "response_format", "stream_options"];

#[derive(Deserialize)]
struct ResponsesBody {
    model: Option<String>,
    input: Option<Value>,
    instructions: Option<String>,
    stream: Option<bool>,
    max_output_tokens: Option<usize>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    include: Option<Vec<String>>,
    top_logprobs: Option<usize>,
    reasoning: Option<Value>,
    chat_template_kwargs: Option<Value>,
    min_tokens: Option<usize>,
    ignore_eos: Option<bool>,
    seed: Option<i64>,
}

pub(super) fn read(body: &[u8], memory: &PrefixCache) -> Result<ParsedRequest, RequestError> {
    let whole: Value = serde_json::from_slice(body)?;
    if let Some(name) = UNKNOWN.into_iter().find(|name| whole.get(name).is_some()) {
        return Err(RequestError { message: format!("Unknown parameter: '{name}'."), field: Some(name) });
    }
    let own = answer_format(whole.get("text"));
    let form = constrained_format(own, |name| whole.get(name))?;
    let body: ResponsesBody = serde_json::from_value(whole)?;
    let required = |field: &'static str| RequestError {
        message: format!("Missing required parameter: '{field}'."),
        field: Some(field),
    };
    let (model, suffix) = split_suffix(body.model.as_deref().ok_or_else(|| required("model"))?);
    let input = match body.input.as_ref().ok_or_else(|| required("input"))? {
        Value::String(text) => vec![json!({ "role": "user", "content": text })],
        Value::Array(items) if !items.is_empty() => items.clone(),
        _ => return Err(required("input")),
    };
    let tools = body.tools.as_deref().unwrap_or_default();
    let instructions = body.instructions.as_ref().map(|text| json!({ "role": "system", "content": text }));
    let turns: Vec<&Value> = instructions.iter().chain(&input).collect();
    let wants_logprobs = body.include.iter().flatten().any(|name| name == "message.output_text.logprobs");
    Ok(ParsedRequest {
        reasoning: wants_reasoning(&body, &model),
        model,
        suffix,
        stream: body.stream.unwrap_or(false),
        usage: true,
        n: 1,
        max_tokens: body.max_output_tokens,
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        seed: body.seed.map_or(0, i64::cast_unsigned),
        logprobs: wants_logprobs.then(|| body.top_logprobs.unwrap_or(0).min(20)),
        form,
        tools: tools.iter().filter_map(tool).collect(),
        choice: choice(body.tool_choice.as_ref()),
        parallel: body.parallel_tool_calls.unwrap_or(true),
        asked: input
            .last()
            .filter(|item| role(item) == "user")
            .map_or_else(String::new, |item| text_content(item.get("content"))),
        prompt: memory.measure(tools, &turns),
        ..ParsedRequest::default()
    })
}

fn wants_reasoning(body: &ResponsesBody, model: &str) -> bool {
    let switch = body.chat_template_kwargs.as_ref().and_then(|all| all.get("enable_thinking")?.as_bool());
    let effort = || Some(body.reasoning.as_ref()?.get("effort")?.as_str()? != "none");
    switch.or_else(effort).unwrap_or_else(|| reasons_by_default(model))
}

fn answer_format(text: Option<&Value>) -> AnswerFormat {
    let format = text.and_then(|text| text.get("format"));
    match format.and_then(|format| format.get("type")?.as_str()) {
        Some("json_object") => AnswerFormat::Object,
        Some("json_schema") => format
            .and_then(|format| format.get("schema"))
            .cloned()
            .map_or(AnswerFormat::Object, AnswerFormat::Schema),
        _ => AnswerFormat::Text,
    }
}

fn tool(declared: &Value) -> Option<DeclaredTool> {
    Some(DeclaredTool {
        name: declared.get("name")?.as_str()?.to_owned(),
        schema: declared.get("parameters").cloned().unwrap_or(Value::Null),
    })
}

fn choice(choice: Option<&Value>) -> ToolChoice {
    let word = |word: &str| match word {
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        _ => ToolChoice::Auto,
    };
    match choice {
        Some(Value::String(choice)) => word(choice),
        Some(object) => match object.get("name").and_then(Value::as_str) {
            Some(name) => ToolChoice::Named(name.to_owned()),
            None => word(object.get("mode").and_then(Value::as_str).unwrap_or_default()),
        },
        None => ToolChoice::Auto,
    }
}
