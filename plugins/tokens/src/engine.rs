//! Token counts by the engine that serves a model.
//!
//! Guarantees: only the members that form the prompt are sent. This module builds calls and parses their answers; the
//! caller sends them. Some engines need a second call, which is built from the answer to the first one.
//!
//! | API | chat | messages | text |
//! |---|---|---|---|
//! | vLLM | `/tokenize` | `/v1/messages/count_tokens` | `/tokenize` |
//! | llama.cpp | `/apply-template`, then `/tokenize` | `/v1/messages/count_tokens` | `/tokenize` |
//! | SGLang | – | – | `/v1/tokenize` |
//! | TGI | `/chat_tokenize` | – | `/tokenize`, for documents only |
//! | TEI | – | – | `/tokenize` |
//!
//! If the table has a dash, the prompt can be rendered with [`crate::render_prompt`] and sent as text. This does not
//! work for TGI, which would add the special tokens of the prompt a second time.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum size of an answer in bytes. An answer may list each token as a number of several digits.
pub const MAX_ANSWER_BYTES: usize = 32 << 20;

/// API of an engine for counting tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TokenizeApi {
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

/// Input of a count.
#[derive(Clone, Copy)]
pub enum CountInput<'b> {
    /// Body of a chat completions request.
    Chat(&'b [u8]),
    /// Body of a messages request.
    Messages(&'b [u8]),
    /// Rendered prompt, which already contains its special tokens. An API that would add them again does not count it.
    Prompt(&'b str),
    /// Text for an embedding: the tokenizer adds its usual special tokens.
    Document(&'b str),
}

/// Request to an engine: POST, JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineCall {
    /// Path below the engine's root (not below its `/v1`).
    pub path: &'static str,
    /// Request body.
    pub body: Vec<u8>,
}

/// Progress of a count after an answer of the engine.
#[derive(Clone, PartialEq, Eq)]
pub enum CountProgress {
    /// Number of tokens.
    Tokens(u64),
    /// Second request that is to be sent to the engine; its answer has the number of tokens.
    NextCall(EngineCall),
}

/// Failure of a count by an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The engine has no API that counts this kind of input.
    #[error("the engine has no call for this")]
    Unsupported,
    /// The input is not a JSON object.
    #[error("the request is not a JSON object")]
    InvalidInput,
    /// The engine answered with this HTTP status.
    #[error("the engine answered {0}")]
    Status(u16),
    /// The answer has no number of tokens.
    #[error("the engine's answer was not understood")]
    InvalidResponse,
}

/// Builds the first call. `model` is the engine's name for the model.
///
/// # Errors
/// Returns an error if the engine has no call for this kind of input, or the input is no JSON object.
pub fn build_call(shape: TokenizeApi, model: &str, input: CountInput<'_>) -> Result<EngineCall, EngineError> {
    let (path, body) = match (shape, input) {
        (TokenizeApi::Vllm, CountInput::Chat(body)) => ("/tokenize", chat(model, body)?),
        (TokenizeApi::Vllm, CountInput::Prompt(text)) => {
            ("/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": false}))
        }
        (TokenizeApi::Vllm, CountInput::Document(text)) => {
            ("/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": true}))
        }
        (TokenizeApi::Vllm | TokenizeApi::LlamaCpp, CountInput::Messages(body)) => {
            ("/v1/messages/count_tokens", messages(model, body)?)
        }
        (TokenizeApi::LlamaCpp, CountInput::Chat(body)) => ("/apply-template", chat(model, body)?),
        (TokenizeApi::LlamaCpp, CountInput::Prompt(text)) => ("/tokenize", llama_text(text)),
        (TokenizeApi::LlamaCpp, CountInput::Document(text)) => ("/tokenize", llama_text(text)),
        (TokenizeApi::Sglang, CountInput::Prompt(text)) => {
            ("/v1/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": false}))
        }
        (TokenizeApi::Sglang, CountInput::Document(text)) => {
            ("/v1/tokenize", json!({"model": model, "prompt": text, "add_special_tokens": true}))
        }
        (TokenizeApi::Tgi, CountInput::Chat(body)) => ("/chat_tokenize", chat(model, body)?),
        (TokenizeApi::Tgi, CountInput::Document(text)) => ("/tokenize", json!({"inputs": text})),
        (TokenizeApi::Tei, CountInput::Prompt(text)) => {
            ("/tokenize", json!({"inputs": text, "add_special_tokens": false}))
        }
        (TokenizeApi::Tei, CountInput::Document(text)) => {
            ("/tokenize", json!({"inputs": text, "add_special_tokens": true}))
        }
        (TokenizeApi::Sglang | TokenizeApi::Tgi | TokenizeApi::Tei, _) => {
            return Err(EngineError::Unsupported);
        }
    };
    Ok(EngineCall { path, body: body.to_string().into_bytes() })
}

/// Parses the answer to a call. The answers of several APIs look alike, so an answer with a number of tokens is
/// accepted for any API.
///
/// # Errors
/// Returns an error for a status other than 200, or an answer without a number of tokens.
pub fn parse_count_response(
    shape: TokenizeApi,
    status: u16,
    body: &[u8],
) -> Result<CountProgress, EngineError> {
    if status != 200 {
        return Err(EngineError::Status(status));
    }
    let answer: Value = serde_json::from_slice(body).map_err(|_| EngineError::InvalidResponse)?;
    if let (TokenizeApi::LlamaCpp, Some(prompt)) = (shape, answer.get("prompt").and_then(Value::as_str)) {
        let body = llama_text(prompt).to_string().into_bytes();
        return Ok(CountProgress::NextCall(EngineCall { path: "/tokenize", body }));
    }
    let numbers = ["input_tokens", "count"].iter().find_map(|name| number(answer.get(*name)?));
    let lists = || ["tokens", "tokenize_response"].iter().find_map(|name| answer.get(*name)?.as_array());
    numbers
        .or_else(|| lists().or(answer.as_array()).map(|list| length(list)))
        .map(CountProgress::Tokens)
        .ok_or(EngineError::InvalidResponse)
}

/// Returns the request of a chat with only the members that form its prompt.
fn chat(model: &str, body: &[u8]) -> Result<Value, EngineError> {
    let members = [
        "messages",
        "tools",
        "chat_template_kwargs",
        "mm_processor_kwargs",
        "continue_final_message",
        "reasoning_effort",
    ];
    let mut picked = pick_members(model, body, &members)?;
    let continues = picked.get("continue_final_message") == Some(&Value::Bool(true));
    picked.insert("add_generation_prompt".to_owned(), (!continues).into());
    Ok(picked.into())
}

/// Returns the body of a messages request to count. The older `output_format` becomes a member of `output_config`, and
/// the type `auto` of `thinking` is named `adaptive`, as engines require.
fn messages(model: &str, body: &[u8]) -> Result<Value, EngineError> {
    let members =
        ["system", "messages", "tools", "tool_choice", "thinking", "output_config", "output_format"];
    let mut picked = pick_members(model, body, &members)?;
    if let Some(format) = picked.remove("output_format") {
        let config = picked.entry("output_config").or_insert_with(|| json!({}));
        if let Some(own) = config.as_object_mut().filter(|own| own.get("format").is_none_or(Value::is_null)) {
            own.insert("format".to_owned(), format);
        }
    }
    if let Some(kind) = picked.get_mut("thinking").and_then(|thinking| thinking.get_mut("type"))
        && kind == "auto"
    {
        *kind = "adaptive".into();
    }
    Ok(picked.into())
}

fn pick_members(model: &str, body: &[u8], members: &[&str]) -> Result<Map<String, Value>, EngineError> {
    let mut body: Map<String, Value> = serde_json::from_slice(body).map_err(|_| EngineError::InvalidInput)?;
    let mut picked = Map::new();
    picked.insert("model".to_owned(), model.into());
    for name in members {
        if let Some(value) = body.get_mut(*name).map(Value::take).filter(|value| !value.is_null()) {
            picked.insert((*name).to_owned(), value);
        }
    }
    Ok(picked)
}

/// Returns a rendered prompt in the form that llama.cpp accepts: its server removes the begin-of-text token from the
/// text, and the tokenizer adds it again, so the count stays the same.
fn llama_text(text: &str) -> Value {
    json!({"content": text, "add_special": true, "parse_special": true})
}

/// Returns a number, or the sum of a list of numbers; `None` if the value, or an element of the list, is not an
/// unsigned integer, or if the sum overflows.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Array(list) => {
            list.iter().try_fold(0u64, |sum, element| element.as_u64().and_then(|n| sum.checked_add(n)))
        }
        one => one.as_u64(),
    }
}

/// Returns the number of elements of a list; for a list of lists, the total number of their elements.
fn length(list: &[Value]) -> u64 {
    list.iter().map(|item| item.as_array().map_or(1, Vec::len) as u64).sum()
}
