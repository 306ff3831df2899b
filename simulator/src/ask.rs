//! What a request asks for, in either dialect.

mod chat;
mod messages;

use super::prompt::{Memory, Prompt};
use super::tools::{Choice, Tool};
use serde_json::Value;

/// The form of an answer's text.
#[derive(Clone, Debug, Default)]
pub(super) enum Form {
    /// Sentences.
    #[default]
    Text,
    /// Any JSON object.
    Object,
    /// JSON that satisfies this schema.
    Schema(Value),
}

/// A request, whatever dialect it came in.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// The model's name as asked, behaviour left out.
    pub model: String,
    /// Behaviour that the model's name asks for: what follows its first `#`.
    pub suffix: Option<String>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Whether a stream tells its usage (chat).
    pub usage: bool,
    /// Number of answers, at least one.
    pub n: usize,
    /// Most tokens of one answer.
    pub most: Option<usize>,
    /// Least tokens of one answer.
    pub least: usize,
    /// Goes on until [`Ask::most`], whatever it has to say.
    pub endless: bool,
    /// Strings that end an answer.
    pub stops: Vec<String>,
    /// The seed of the request.
    pub seed: u64,
    /// Whether it reasons first.
    pub reasons: bool,
    /// Alternatives to tell with each token's probability.
    pub logprobs: Option<usize>,
    /// The form of the text.
    pub form: Form,
    /// The tools.
    pub tools: Vec<Tool>,
    /// Their use.
    pub choice: Choice,
    /// Whether several may be called at once.
    pub parallel: bool,
    /// The last words of the user; empty after a tool's result.
    pub asked: String,
    /// The beginning of an answer that is to be continued.
    pub begun: Option<String>,
    /// What the prompt weighs.
    pub prompt: Prompt,
}

/// A request that is none: a sentence, and the field that is wrong.
#[derive(Debug)]
pub(super) struct Wrong {
    /// What is wrong.
    pub message: String,
    /// Where.
    pub field: Option<&'static str>,
}

impl Ask {
    /// Reads a chat completions request.
    pub(super) fn chat(body: &[u8], memory: &Memory) -> Result<Self, Wrong> {
        chat::read(body, memory)
    }

    /// Reads a native messages request; `max_tokens` may be absent when only tokens are counted.
    pub(super) fn messages(body: &[u8], memory: &Memory, counts: bool) -> Result<Self, Wrong> {
        messages::read(body, memory, counts)
    }
}

/// A model's name and the behaviour behind its first `#`.
fn split(model: &str) -> (String, Option<String>) {
    match model.split_once('#') {
        Some((name, suffix)) => (name.to_owned(), Some(suffix.to_owned())),
        None => (model.to_owned(), None),
    }
}

/// Whether a model of this name reasons unless it is told not to.
fn reasoner(model: &str) -> bool {
    let model = model.to_lowercase();
    ["thinking", "reason", "gpt-oss", "deepseek-r1", "qwq", "magistral"]
        .iter()
        .any(|word| model.contains(word))
}

/// The text of a message's content: the string, or its text parts.
fn words_of(content: Option<&Value>) -> String {
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

impl From<serde_json::Error> for Wrong {
    fn from(error: serde_json::Error) -> Self {
        Self { message: format!("The body is not as expected: {error}"), field: None }
    }
}
