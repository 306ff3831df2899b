//! Counting by the engine that serves a model.
//!
//! Promises: only what makes the prompt is sent; a call is a value, its answer is parsed here, the
//! sending is somebody else's. Some engines need a second call, which the first answer gives.
//!
//! | shape | chat | messages | text |
//! |---|---|---|---|
//! | vLLM | `/tokenize` | `/v1/messages/count_tokens` | `/tokenize` |
//! | llama.cpp | `/apply-template`, then `/tokenize` | `/v1/messages/count_tokens` | `/tokenize` |
//! | SGLang | – | – | `/v1/tokenize` |
//! | TGI | `/chat_tokenize` | – | `/tokenize` |
//! | TEI | – | – | `/tokenize` |
//!
//! Where there is a dash, the prompt can be rendered with [`crate::render_prompt`] and sent as text.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The most an answer may hold; tokens come as numbers of several digits.
pub const ANSWER_CAP: usize = 32 << 20;

/// An engine's way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Shape {
    /// vLLM.
    #[serde(rename = "vllm")]
    Vllm,
    /// llama.cpp's server.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
    /// SGLang.
    #[serde(rename = "sglang")]
    Sglang,
    /// Text Generation Inference.
    #[serde(rename = "tgi")]
    Tgi,
    /// Text Embeddings Inference.
    #[serde(rename = "tei")]
    Tei,
}

/// What is to be counted.
#[derive(Clone, Copy)]
pub enum Input<'b> {
    /// The body of a chat completions request.
    Chat(&'b [u8]),
    /// The body of a messages request.
    Messages(&'b [u8]),
    /// A rendered prompt: the tokenizer adds nothing to it.
    Prompt(&'b str),
    /// A text for an embedding: the tokenizer adds what it always adds.
    Document(&'b str),
}

/// A request to send: POST, JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineCall {
    /// The path below the engine's root (not below its `/v1`).
    pub path: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// What an answer gives.
#[derive(Clone, PartialEq, Eq)]
pub enum Progress {
    /// The tokens.
    Tokens(u64),
    /// Another call is needed; its answer is the last.
    Then(EngineCall),
}

/// Why an engine did not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// This engine cannot count such an input.
    #[error("the engine has no call for this")]
    Unsupported,
    /// The input is no JSON object.
    #[error("the request is not a JSON object")]
    Input,
    /// The engine answered with this status.
    #[error("the engine answered {0}")]
    Status(u16),
    /// The answer holds no number of tokens.
    #[error("the engine's answer was not understood")]
    Answer,
}

/// The first call. `model` is the engine's name for the model.
///
/// # Errors
/// The engine has no such call, or the input is no JSON object.
pub fn request(shape: Shape, model: &str, input: Input<'_>) -> Result<EngineCall, EngineError> {
    let (path, body) = match (shape, input) {
        (Shape::Vllm, Input::Chat(body)) => ("/tokenize", chat(model, body)?),
        (Shape::Vllm, Input::Prompt(text)) => {
            ("/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": false}))
        }
        (Shape::Vllm, Input::Document(text)) => {
            ("/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": true}))
        }
        (Shape::Vllm | Shape::LlamaCpp, Input::Messages(body)) => {
            let members = ["system", "messages", "tools", "tool_choice", "thinking", "output_config"];
            ("/v1/messages/count_tokens", pick(model, body, &members)?.into())
        }
        (Shape::LlamaCpp, Input::Chat(body)) => ("/apply-template", chat(model, body)?),
        (Shape::LlamaCpp, Input::Prompt(text)) => ("/tokenize", llama_text(text)),
        (Shape::LlamaCpp, Input::Document(text)) => ("/tokenize", llama_text(text)),
        (Shape::Sglang, Input::Prompt(text)) => {
            ("/v1/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": false}))
        }
        (Shape::Sglang, Input::Document(text)) => {
            ("/v1/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": true}))
        }
        (Shape::Tgi, Input::Chat(body)) => ("/chat_tokenize", chat(model, body)?),
        (Shape::Tgi, Input::Prompt(text) | Input::Document(text)) => ("/tokenize", json!({"inputs": text})),
        (Shape::Tei, Input::Prompt(text)) => {
            ("/tokenize", json!({"inputs": text, "add_special_tokens": false}))
        }
        (Shape::Tei, Input::Document(text)) => {
            ("/tokenize", json!({"inputs": text, "add_special_tokens": true}))
        }
        (Shape::Sglang | Shape::Tgi | Shape::Tei, _) => return Err(EngineError::Unsupported),
    };
    Ok(EngineCall { path, body: body.to_string().into_bytes() })
}

/// What the answer to a call gives. Two shapes may be the same answer: an answer that holds a number
/// of tokens is understood whichever call it answers.
///
/// # Errors
/// A status other than 200, or an answer without a number of tokens.
pub fn parse(shape: Shape, status: u16, body: &[u8]) -> Result<Progress, EngineError> {
    if status != 200 {
        return Err(EngineError::Status(status));
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| EngineError::Answer)?;
    if let (Shape::LlamaCpp, Some(prompt)) = (shape, answer.get("prompt").and_then(Value::as_str)) {
        let body = llama_text(prompt).to_string().into_bytes();
        return Ok(Progress::Then(EngineCall { path: "/tokenize", body }));
    }
    let numbers = ["input_tokens", "count"].iter().find_map(|name| number(answer.get(*name)?));
    let lists = || ["tokens", "tokenize_response"].iter().find_map(|name| answer.get(*name)?.as_array());
    numbers
        .or_else(|| lists().or(answer.as_array()).map(|list| length(list)))
        .map(Progress::Tokens)
        .ok_or(EngineError::Answer)
}

/// The members that make a chat's prompt.
fn chat(model: &str, body: &[u8]) -> Result<Value, EngineError> {
    let members = [
        "messages",
        "tools",
        "chat_template_kwargs",
        "mm_processor_kwargs",
        "continue_final_message",
        "reasoning_effort",
    ];
    let mut picked = pick(model, body, &members)?;
    let continues = picked.get("continue_final_message") == Some(&Value::Bool(true));
    picked.insert("add_generation_prompt".to_owned(), (!continues).into());
    Ok(picked.into())
}

fn pick(model: &str, body: &[u8], members: &[&str]) -> Result<Map<String, Value>, EngineError> {
    let mut body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| EngineError::Input)?;
    let mut picked = Map::new();
    picked.insert("model".to_owned(), model.into());
    for name in members {
        if let Some(value) = body.get_mut(*name).map(Value::take).filter(|value| !value.is_null()) {
            picked.insert((*name).to_owned(), value);
        }
    }
    Ok(picked)
}

/// The server takes a begin-of-text out of a rendered prompt and lets the tokenizer add it.
fn llama_text(text: &str) -> Value {
    json!({"content": text, "add_special": true, "parse_special": true})
}

/// A number, or the sum of a list of numbers.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Array(list) => list.iter().map(Value::as_u64).sum(),
        one => one.as_u64(),
    }
}

/// The length of a list, or the sum of its lists' lengths.
fn length(list: &[Value]) -> u64 {
    list.iter().map(|item| item.as_array().map_or(1, Vec::len) as u64).sum()
}
