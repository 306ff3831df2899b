//! What an error body is about: its codes, and words and numbers in its sentence.

use serde_json::Value;

/// Bodies are read up to here.
const MAX_BODY: usize = 64 << 10;

const WINDOW: &[&str] = &[
    "context length",
    "context_length",
    "context window",
    "context size",
    "context_size",
    "context limit",
    "maximum context",
    "max_model_len",
    "prompt is too long",
    "input is too long",
    "too large for model with",
    "`inputs` tokens",
    "`inputs` must have less than",
];
const CONTENT: &[&str] = &[
    "content_filter",
    "content_policy",
    "content policy",
    "content management policy",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "moderation",
    "safety system",
    "was flagged",
];
/// Fields that may be named to the client, longest first where one contains another.
const FIELDS: &[&str] = &[
    "max_completion_tokens",
    "max_tokens",
    "response_format",
    "json_schema",
    "tool_choice",
    "tool_calls",
    "tools",
    "reasoning_effort",
    "temperature",
    "top_logprobs",
    "logprobs",
    "logit_bias",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "image_url",
    "input_audio",
    "seed",
    "stop",
    "messages",
    "encoding_format",
    "dimensions",
    "documents",
    "top_n",
];

/// An error body in lower case.
pub(super) struct About {
    /// `param`, if it is a plain path.
    param: Option<String>,
    /// Sentence, type and code.
    text: String,
    window: Option<u64>,
    input: Option<u64>,
}

impl About {
    /// Reads a body: an error object in any of the shapes seen, or plain text.
    pub(super) fn read(body: &[u8]) -> Self {
        let body = body.get(..body.len().min(MAX_BODY)).unwrap_or_default();
        let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let error = [value.get("error"), value.get("detail")].into_iter().flatten().next().unwrap_or(&value);
        let mut text = String::new();
        collect(error, &mut text, 0);
        if value.is_null() {
            text = String::from_utf8_lossy(body).into_owned();
        }
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        let param = error.get("param").and_then(Value::as_str).filter(|param| is_path(param));
        Self {
            param: param.map(str::to_owned),
            text: text.to_lowercase(),
            window: number("n_ctx"),
            input: number("n_prompt_tokens"),
        }
    }

    /// The context window is too small for what was asked.
    pub(super) fn window_is_full(&self) -> bool {
        WINDOW.iter().any(|word| self.text.contains(word))
    }

    /// The provider will not deal with this content.
    pub(super) fn content_is_refused(&self) -> bool {
        CONTENT.iter().any(|word| self.text.contains(word))
    }

    /// The field that is to blame.
    pub(super) fn field(&self) -> Option<String> {
        let named = |name: &&&str| contains_word(&self.text, name);
        self.param.clone().or_else(|| FIELDS.iter().find(named).map(|name| (*name).to_owned()))
    }

    /// Tokens of the window, as the provider counts.
    pub(super) fn window(&self) -> Option<u64> {
        let after = [
            "context length is ",
            "context length of ",
            "context length (",
            "context window of ",
            "context size (",
            "max_model_len of ",
            "must be <= ",
            "must have less than ",
            "model with ",
            " > ",
        ];
        self.window.or_else(|| after.iter().find_map(|phrase| number_after(&self.text, phrase)))
    }

    /// Tokens of the input, as the provider counts.
    pub(super) fn input(&self) -> Option<u64> {
        let before = [
            " in the messages",
            " tokens from the input",
            " input tokens",
            " tokens in the messages",
            " `inputs` tokens",
        ];
        let after = [
            "resulted in ",
            "prompt contains ",
            "too long: ",
            "the input (",
            "context limit: ",
            "request (",
            "you requested ",
            "given: ",
            "at least ",
        ];
        self.input
            .or_else(|| before.iter().find_map(|phrase| number_before(&self.text, phrase)))
            .or_else(|| after.iter().find_map(|phrase| number_after(&self.text, phrase)))
    }
}

impl About {
    /// The same, where it can be the whole input beside a window of so many: an engine that stops counting once the
    /// answer does not fit says "at least", and a number that leaves a token less than was asked for.
    pub(super) fn input_beside(&self, window: u64) -> Option<u64> {
        let least = |input: u64| input <= window && self.text.contains(&format!("at least {input}"));
        self.input().filter(|input| !least(*input))
    }
}

/// Strings and codes of an error, wherever they stand.
fn collect(value: &Value, text: &mut String, depth: u8) {
    match value {
        Value::String(sentence) => {
            text.push_str(sentence);
            text.push('\n');
        }
        Value::Object(members) if depth < 4 => {
            members.values().for_each(|value| collect(value, text, depth + 1))
        }
        Value::Array(items) if depth < 4 => items.iter().for_each(|value| collect(value, text, depth + 1)),
        _ => {}
    }
}

/// A path such as `messages[2].content`: nothing that could hold a secret or a sentence.
fn is_path(param: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']');
    !param.is_empty() && param.len() <= 80 && param.bytes().all(plain)
}

fn contains_word(text: &str, word: &str) -> bool {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(word).any(|(at, _)| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !part(before) && !part(bytes.get(at + word.len()))
    })
}

fn number_after(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text.get(at + phrase.len()..)?;
        let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        number(rest.get(..digits)?)
    })
}

fn number_before(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text.get(..at)?;
        let digits = rest.bytes().rev().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        number(rest.get(rest.len() - digits..)?)
    })
}

/// Digits, perhaps grouped by commas.
fn number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}
