//! Parser of chat completions requests.

use super::constraint::{constrained_format, response_format};
use super::{ParsedRequest, RequestError, reasons_by_default, role, split_suffix, text_content};
use crate::prompt::PrefixCache;
use crate::tools::{DeclaredTool, ToolChoice};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct ChatBody {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    min_tokens: Option<usize>,
    ignore_eos: Option<bool>,
    stop: Option<StopStrings>,
    seed: Option<i64>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    response_format: Option<Value>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    reasoning_effort: Option<String>,
    chat_template_kwargs: Option<Value>,
    continue_final_message: Option<bool>,
    /// All other members, such as the constraints of engines.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StopStrings {
    One(String),
    Many(Vec<String>),
}

pub(super) fn read(body: &[u8], memory: &PrefixCache) -> Result<ParsedRequest, RequestError> {
    let body: ChatBody = serde_json::from_slice(body)?;
    let Some((model, suffix)) = body.model.as_deref().map(split_suffix) else {
        return Err(RequestError { message: "Field required: model".to_owned(), field: Some("model") });
    };
    let Some(messages) = body.messages.as_deref().filter(|all| !all.is_empty()) else {
        return Err(RequestError { message: "Field required: messages".to_owned(), field: Some("messages") });
    };
    let tools = body.tools.as_deref().unwrap_or_default();
    let last = messages.last();
    let prefix = last.and_then(|message| message.get("prefix")?.as_bool()).unwrap_or(false);
    let continues = body.continue_final_message.unwrap_or(false) || prefix;
    let begun = last.filter(|message| continues && role(message) == "assistant");
    let prompt =
        if begun.is_some() { messages.split_last().map_or(messages, |(_, all)| all) } else { messages };
    let form =
        constrained_format(response_format(body.response_format.as_ref()), |name| body.others.get(name))?;
    Ok(ParsedRequest {
        reasoning: wants_reasoning(&body, &model),
        model,
        suffix,
        stream: body.stream.unwrap_or(false),
        usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        n: body.n.unwrap_or(1).clamp(1, 128),
        max_tokens: body.max_completion_tokens.or(body.max_tokens),
        min_tokens: body.min_tokens.unwrap_or(0),
        ignore_eos: body.ignore_eos.unwrap_or(false),
        stops: match body.stop {
            None => Vec::new(),
            Some(StopStrings::One(one)) => vec![one],
            Some(StopStrings::Many(many)) => many,
        },
        seed: body.seed.map_or(0, i64::cast_unsigned),
        logprobs: body.logprobs.unwrap_or(false).then(|| body.top_logprobs.unwrap_or(0).min(20)),
        form,
        tools: tools.iter().filter_map(tool).collect(),
        choice: choice(body.tool_choice.as_ref()),
        parallel: body.parallel_tool_calls.unwrap_or(true),
        asked: prompt
            .last()
            .filter(|turn| role(turn) == "user")
            .map_or_else(String::new, |turn| text_content(turn.get("content"))),
        prefill: begun.map(|message| text_content(message.get("content"))),
        prompt: memory.measure(tools, &prompt.iter().collect::<Vec<_>>()),
    })
}

/// Returns true if the answer must have reasoning. The switch in `chat_template_kwargs` decides; without a switch,
/// `enable_thinking` or `thinking`; without these, the effort; without all of them, the name of the model.
fn wants_reasoning(body: &ChatBody, model: &str) -> bool {
    let switch = |name: &str| body.chat_template_kwargs.as_ref().and_then(|all| all.get(name)?.as_bool());
    let parameter = || {
        let kind = body.others.get("thinking").and_then(|thinking| thinking.get("type")?.as_str());
        let enabled = body.others.get("enable_thinking").and_then(Value::as_bool);
        enabled.or(kind.map(|kind| kind != "disabled"))
    };
    let effort = || body.reasoning_effort.as_deref().map(|effort| effort != "none");
    switch("enable_thinking")
        .or(switch("thinking"))
        .or_else(parameter)
        .or_else(effort)
        .unwrap_or_else(|| reasons_by_default(model))
}

fn tool(declared: &Value) -> Option<DeclaredTool> {
    let function = declared.get("function")?;
    Some(DeclaredTool {
        name: function.get("name")?.as_str()?.to_owned(),
        schema: function.get("parameters").cloned().unwrap_or(Value::Null),
    })
}

fn choice(choice: Option<&Value>) -> ToolChoice {
    match choice {
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(Value::String(word)) if word == "required" => ToolChoice::Required,
        Some(object) => match object.pointer("/function/name").and_then(Value::as_str) {
            Some(name) => ToolChoice::Named(name.to_owned()),
            None => ToolChoice::Auto,
        },
        None => ToolChoice::Auto,
    }
}
