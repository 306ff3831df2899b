//! Parsed request, in any dialect.

mod chat;
pub(super) mod constraint;
mod messages;
mod responses;

use super::prompt::{PrefixCache, PromptSize};
use super::tools::{DeclaredTool, ToolChoice};
use serde_json::Value;

/// Format of an answer's text.
#[derive(Clone, Debug, Default)]
pub(super) enum AnswerFormat {
    /// Sentences.
    #[default]
    Text,
    /// Any JSON object.
    Object,
    /// JSON that satisfies this schema.
    Schema(Value),
    /// This text.
    Exact(String),
}

/// Request in a form independent of its dialect.
#[derive(Clone, Debug, Default)]
pub(super) struct ParsedRequest {
    /// Model name without its suffix.
    pub model: String,
    /// Suffix of the model name: the part after its first `#`.
    pub suffix: Option<String>,
    /// True if the answer is a stream.
    pub stream: bool,
    /// True if the request asks for the usage in the stream (chat).
    pub usage: bool,
    /// Number of answers, at least one.
    pub n: usize,
    /// Maximum number of tokens of one answer.
    pub max_tokens: Option<usize>,
    /// Minimum number of tokens of one answer.
    pub min_tokens: usize,
    /// True if the answer continues until [`ParsedRequest::max_tokens`].
    pub ignore_eos: bool,
    /// Strings that end an answer.
    pub stops: Vec<String>,
    /// Seed of the request.
    pub seed: u64,
    /// True if the answer begins with reasoning.
    pub reasoning: bool,
    /// Number of alternative tokens to report with the log probability of each token; `None` for no log
    /// probabilities.
    pub logprobs: Option<usize>,
    /// Format of the text.
    pub form: AnswerFormat,
    /// Declared tools.
    pub tools: Vec<DeclaredTool>,
    /// Tool choice.
    pub choice: ToolChoice,
    /// True if several tools may be called at once.
    pub parallel: bool,
    /// Text of the last message if it is from the user; otherwise empty.
    pub asked: String,
    /// Beginning of an answer to be continued.
    pub prefill: Option<String>,
    /// Token counts and hash of the prompt.
    pub prompt: PromptSize,
}

/// Parse error of a request: a sentence, and the invalid field.
#[derive(Debug)]
pub(super) struct RequestError {
    /// Description of the mistake.
    pub message: String,
    /// Name of the invalid field.
    pub field: Option<&'static str>,
}

impl ParsedRequest {
    /// Parses a chat completions request.
    pub(super) fn chat(body: &[u8], memory: &PrefixCache) -> Result<Self, RequestError> {
        chat::read(body, memory)
    }

    /// Parses a native messages request. If `counts` is true, the request only counts tokens and `max_tokens` may be
    /// absent.
    pub(super) fn messages(body: &[u8], memory: &PrefixCache, counts: bool) -> Result<Self, RequestError> {
        messages::read(body, memory, counts)
    }

    /// Parses a responses request.
    pub(super) fn responses(body: &[u8], memory: &PrefixCache) -> Result<Self, RequestError> {
        responses::read(body, memory)
    }

    /// Sets the length of the answer in tokens; a smaller `max_tokens` of the request still limits it.
    pub(super) fn set_length(&mut self, tokens: usize) {
        self.max_tokens = Some(tokens.min(self.max_tokens.unwrap_or(usize::MAX)));
        self.ignore_eos = true;
    }
}

/// Splits a model name at its first `#`.
pub(super) fn split_suffix(model: &str) -> (String, Option<String>) {
    match model.split_once('#') {
        Some((name, suffix)) => (name.to_owned(), Some(suffix.to_owned())),
        None => (model.to_owned(), None),
    }
}

/// Returns the model that a JSON body names, with its suffix; empty if there is none.
pub(super) fn named_model(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns true if a model with this name reasons by default.
fn reasons_by_default(model: &str) -> bool {
    let model = model.to_lowercase();
    ["thinking", "reason", "gpt-oss", "deepseek-r1", "qwq", "magistral"]
        .iter()
        .any(|word| model.contains(word))
}

/// Returns the text of a message's content: the string, or its text parts.
fn text_content(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

impl From<serde_json::Error> for RequestError {
    fn from(error: serde_json::Error) -> Self {
        Self { message: format!("The body is not as expected: {error}"), field: None }
    }
}
