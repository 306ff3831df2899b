//! What an error body is about: its codes, and words and numbers in its sentence.

use super::words::{CAP, CONTENT, EXCESS, FIELDS, HISTORY, LARGEST, LEFT, MEMORY, WINDOW};
use penstock_contract::Extras;
use serde_json::Value;

/// Bodies are read up to here.
const MAX_BODY: usize = 64 << 10;

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
        self.overflow().is_some() || self.says(WINDOW)
    }

    /// The same of an engine that failed: it may speak of its window for other reasons.
    pub(super) fn failed_for_length(&self) -> bool {
        let about = self.overflow().is_some() || (self.says(WINDOW) && self.says(EXCESS));
        about && !self.says(MEMORY)
    }

    /// An engine failed over a history, or content, that it cannot read.
    pub(super) fn failed_for_history(&self) -> bool {
        self.says(HISTORY) && !self.says(MEMORY)
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.text.contains(word))
    }

    /// The most tokens of an answer that may be asked for, whatever the input: of a sentence about the window it is
    /// not read.
    pub(super) fn max_output(&self) -> Option<u64> {
        if self.window_is_full() || self.content_is_refused() {
            return None;
        }
        let param = self.param.as_deref().unwrap_or_default();
        let of_cap = CAP.iter().any(|name| contains_word(&self.text, name) || *name == param);
        let most = || LARGEST.iter().find_map(|phrase| number_after(&self.text, phrase));
        of_cap.then(most).flatten().filter(|most| *most > 0)
    }

    /// By how many tokens the input is longer than the window, of engines that say what is left for the answer.
    fn overflow(&self) -> Option<u64> {
        let left = |phrase: &&str| {
            let (_, rest) = self.text.split_once(*phrase)?;
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let end = digits.bytes().take_while(u8::is_ascii_digit).count();
            digits.get(..end)?.parse().ok()
        };
        LEFT.iter().find_map(left)
    }

    /// Only the input counts here, not what of the window it leaves.
    pub(super) fn is_of_the_input(&self) -> bool {
        self.says(&[
            "is too large to process",
            "max_input_len",
            "maximum input length",
            "maximum prompt length",
        ])
    }

    /// The provider will not deal with this content.
    pub(super) fn content_is_refused(&self) -> bool {
        CONTENT.iter().any(|word| self.text.contains(word))
    }

    /// The field that is to blame: the one that the provider names first, since others may stand beside it as advice.
    pub(super) fn field(&self) -> Option<String> {
        let first = || {
            let named = FIELDS.iter().filter_map(|name| Some((find_word(&self.text, name)?, *name)));
            named.min().map(|(_, name)| name.to_owned())
        };
        self.param.clone().or_else(first)
    }

    /// Members of the gateway's own that it names, in its sentence or in the path of its `param`.
    pub(super) fn extras(&self) -> Extras {
        let param = self.param.as_deref().unwrap_or_default();
        Extras::named(|word| contains_word(&self.text, word) || contains_word(param, word))
    }

    /// Tokens of the window, as the provider counts.
    pub(super) fn window(&self) -> Option<u64> {
        let after = [
            "max_input_len (",
            "maximum input length (",
            "maximum model length of ",
            "maximum prompt length is ",
            "maximum allowed length (",
            "maximum number of tokens allowed (",
            "maximum number of tokens is ",
            "model token limit: ",
            "exceeds limit of ",
            "cannot exceed ",
            "input length should be [1, ",
            "max_num_tokens (",
            "model maximum context length: ",
            "batch size: ",
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
        if self.overflow().is_some() {
            return None;
        }
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
            "input (",
            "prompt length (",
            "input length (",
            "(length ",
            "(total length ",
            "prompt length of ",
            "input prompt (",
            "token count (",
            "request contains ",
            "received ",
            "is too long: ",
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
    /// Tokens of the input, where the window tells them.
    pub(super) fn beyond(&self, window: u64) -> Option<u64> {
        self.overflow().filter(|_| window > 0).map(|more| window.saturating_add(more))
    }

    /// The same, where it can be the whole input beside a window of so many: an engine that stops counting once the
    /// answer does not fit says "at least", and a number that leaves a token less than was asked for.
    pub(super) fn input_beside(&self, window: u64) -> Option<u64> {
        if let Some(input) = self.beyond(window) {
            return Some(input);
        }
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

/// Whether a word is a field's name, or a path that begins with one.
pub(super) fn is_field(word: &str) -> bool {
    let root = word.split(['.', '[']).next().unwrap_or_default();
    is_path(word) && FIELDS.contains(&root)
}

/// A path such as `messages[2].content`: nothing that could hold a secret or a sentence.
fn is_path(param: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']');
    !param.is_empty() && param.len() <= 80 && param.bytes().all(plain)
}

fn contains_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

/// The first position of a word that is no part of a longer one.
fn find_word(text: &str, word: &str) -> Option<usize> {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let alone = |at: &usize| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !part(before) && !part(bytes.get(at + word.len()))
    };
    text.match_indices(word).map(|(at, _)| at).find(alone)
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
