//! Parser of chat completions requests.

use super::{Ask, Form, Wrong, reasoner, role, split, words_of};
use crate::prompt::Memory;
use crate::tools::{Choice, Tool};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    messages: Option<Vec<Value>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    min_tokens: Option<usize>,
    ignore_eos: Option<bool>,
    stop: Option<Stop>,
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
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

pub(super) fn read(body: &[u8], memory: &Memory) -> Result<Ask, Wrong> {
    let body: Body = serde_json::from_slice(body)?;
    let Some((model, suffix)) = body.model.as_deref().map(split) else {
        return Err(Wrong { message: "Field required: model".to_owned(), field: Some("model") });
    };
    let Some(messages) = body.messages.as_deref().filter(|all| !all.is_empty()) else {
        return Err(Wrong { message: "Field required: messages".to_owned(), field: Some("messages") });
    };
    let tools = body.tools.as_deref().unwrap_or_default();
    let last = messages.last();
    let prefix = last.and_then(|message| message.get("prefix")?.as_bool()).unwrap_or(false);
    let continues = body.continue_final_message.unwrap_or(false) || prefix;
    let begun = last.filter(|message| continues && role(message) == "assistant");
    let prompt =
        if begun.is_some() { messages.split_last().map_or(messages, |(_, all)| all) } else { messages };
    Ok(Ask {
        reasons: reasons(&body, &model),
        model,
        suffix,
        stream: body.stream.unwrap_or(false),
        usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        n: body.n.unwrap_or(1).clamp(1, 128),
        most: body.max_completion_tokens.or(body.max_tokens),
        least: body.min_tokens.unwrap_or(0),
        endless: body.ignore_eos.unwrap_or(false),
        stops: match body.stop {
            None => Vec::new(),
            Some(Stop::One(one)) => vec![one],
            Some(Stop::Many(many)) => many,
        },
        seed: body.seed.map_or(0, i64::cast_unsigned),
        logprobs: body.logprobs.unwrap_or(false).then(|| body.top_logprobs.unwrap_or(0).min(20)),
        form: form(body.response_format.as_ref()),
        tools: tools.iter().filter_map(tool).collect(),
        choice: choice(body.tool_choice.as_ref()),
        parallel: body.parallel_tool_calls.unwrap_or(true),
        asked: prompt
            .last()
            .filter(|turn| role(turn) == "user")
            .map_or_else(String::new, |turn| words_of(turn.get("content"))),
        begun: begun.map(|message| words_of(message.get("content"))),
        prompt: memory.weigh(tools, &prompt.iter().collect::<Vec<_>>()),
    })
}

/// Returns true if the request asks for reasoning: by the chat template's switch, else the effort, else the model's
/// name.
fn reasons(body: &Body, model: &str) -> bool {
    let switch = |name: &str| body.chat_template_kwargs.as_ref().and_then(|all| all.get(name)?.as_bool());
    let effort = || body.reasoning_effort.as_deref().map(|effort| effort != "none");
    switch("enable_thinking").or(switch("thinking")).or_else(effort).unwrap_or_else(|| reasoner(model))
}

fn form(format: Option<&Value>) -> Form {
    match format.and_then(|format| format.get("type")?.as_str()) {
        Some("json_object") => Form::Object,
        Some("json_schema") => format
            .and_then(|format| format.pointer("/json_schema/schema"))
            .cloned()
            .map_or(Form::Object, Form::Schema),
        _ => Form::Text,
    }
}

fn tool(declared: &Value) -> Option<Tool> {
    let function = declared.get("function")?;
    Some(Tool {
        name: function.get("name")?.as_str()?.to_owned(),
        schema: function.get("parameters").cloned().unwrap_or(Value::Null),
    })
}

fn choice(choice: Option<&Value>) -> Choice {
    match choice {
        Some(Value::String(word)) if word == "none" => Choice::None,
        Some(Value::String(word)) if word == "required" => Choice::Required,
        Some(object) => match object.pointer("/function/name").and_then(Value::as_str) {
            Some(name) => Choice::Named(name.to_owned()),
            None => Choice::Auto,
        },
        None => Choice::Auto,
    }
}
