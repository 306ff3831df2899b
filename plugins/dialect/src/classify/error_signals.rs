//! Signals in an error body: its codes, and known phrases and numbers in its message.

use super::phrases::{
    CALL_PHRASES, CLIENT_FIELDS, CONTENT_PHRASES, EXCESS_PHRASES, HISTORY_PHRASES, OUT_OF_MEMORY_PHRASES,
    OUTPUT_CAP_NAMES, OUTPUT_LIMIT_NUMBER_PREFIXES, OVERFLOW_PREFIXES, RATE_PHRASES, WINDOW_PHRASES,
};
use penstock_core::ExtraMembers;
use serde_json::Value;

/// Maximum number of bytes of an error body that are read.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Maximum depth at which strings of an error are read: a path is a list in an object in a list in up to three objects.
const MAX_DEPTH: u8 = 8;

/// Signals of an error body, in lower case.
pub(super) struct ErrorSignals {
    /// Member `param`, if it is a plain path.
    param: Option<String>,
    /// Texts of the error (such as message, type and code), in lower case.
    text: String,
    reported_window: Option<u64>,
    reported_input: Option<u64>,
}

impl ErrorSignals {
    /// Parses a body: an error object in any known format, or plain text.
    pub(super) fn read(body: &[u8]) -> Self {
        let body = body.get(..body.len().min(MAX_BODY_BYTES)).unwrap_or_default();
        let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let error = [value.get("error"), value.get("detail")].into_iter().flatten().next().unwrap_or(&value);
        let mut text = String::new();
        collect_strings(error, &mut text, 0);
        if value.is_null() {
            text = String::from_utf8_lossy(body).into_owned();
        }
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        let param = error.get("param").and_then(Value::as_str).filter(|param| is_path(param));
        Self {
            param: param.map(str::to_owned),
            text: text.to_lowercase(),
            reported_window: number("n_ctx"),
            reported_input: number("n_prompt_tokens"),
        }
    }

    /// Returns true if the request does not fit into the context window.
    pub(super) fn is_window_exceeded(&self) -> bool {
        self.window_overflow().is_some()
            || (self.contains_any(WINDOW_PHRASES) && !self.contains_any(RATE_PHRASES))
    }

    /// Returns true if an engine failed because of the length of the input. A word about the context window is not
    /// enough, because a failed engine may mention it for other reasons.
    pub(super) fn is_length_failure(&self) -> bool {
        let about = self.window_overflow().is_some()
            || (self.contains_any(WINDOW_PHRASES) && self.contains_any(EXCESS_PHRASES));
        about && !self.contains_any(RATE_PHRASES) && !self.contains_any(OUT_OF_MEMORY_PHRASES)
    }

    /// Returns true if an engine failed because of a history or content that it cannot read.
    pub(super) fn is_history_failure(&self) -> bool {
        self.contains_any(HISTORY_PHRASES) && !self.contains_any(OUT_OF_MEMORY_PHRASES)
    }

    /// Returns true if an engine failed because of the arguments of a call.
    pub(super) fn is_call_failure(&self) -> bool {
        self.contains_any(CALL_PHRASES) && !self.contains_any(OUT_OF_MEMORY_PHRASES)
    }

    fn contains_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.text.contains(word))
    }

    /// Returns the model's maximum of output tokens, which does not depend on the input. It is not read from a message
    /// about the context window.
    pub(super) fn max_output_tokens(&self) -> Option<u64> {
        if self.is_window_exceeded() || self.is_content_refused() {
            return None;
        }
        let param = self.param.as_deref().unwrap_or_default();
        let of_cap = OUTPUT_CAP_NAMES.iter().any(|name| contains_word(&self.text, name) || *name == param);
        let most = || OUTPUT_LIMIT_NUMBER_PREFIXES.iter().find_map(|phrase| number_after(&self.text, phrase));
        of_cap.then(most).flatten().filter(|most| *most > 0)
    }

    /// Returns the number of tokens by which the input exceeds the window, for engines that report a negative number of
    /// tokens left for the answer.
    fn window_overflow(&self) -> Option<u64> {
        let left = |phrase: &&str| {
            let (_, rest) = self.text.split_once(*phrase)?;
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let end = digits.bytes().take_while(u8::is_ascii_digit).count();
            digits.get(..end)?.parse().ok()
        };
        OVERFLOW_PREFIXES.iter().find_map(left)
    }

    /// Returns true if the limit is on the input alone, and not on the sum of input and answer.
    pub(super) fn is_input_limit(&self) -> bool {
        self.contains_any(&[
            "is too large to process",
            "max_input_len",
            "maximum input length",
            "maximum prompt length",
        ])
    }

    /// Returns true if the provider refuses the content.
    pub(super) fn is_content_refused(&self) -> bool {
        CONTENT_PHRASES.iter().any(|word| self.text.contains(word))
    }

    /// Returns the field at fault: the first field that the provider names, since later ones may be named as advice.
    pub(super) fn blamed_field(&self) -> Option<String> {
        let first = || {
            let named = CLIENT_FIELDS.iter().filter_map(|name| Some((find_word(&self.text, name)?, *name)));
            named.min().map(|(_, name)| name.to_owned())
        };
        self.param.clone().or_else(first)
    }

    /// Returns the members added by the gateway that the message or the path in `param` names. A message may also write
    /// a name with blanks instead of underscores.
    pub(super) fn named_extra_members(&self) -> ExtraMembers {
        let param = self.param.as_deref().unwrap_or_default();
        let names = |word: &str| contains_word(&self.text, word) || contains_word(param, word);
        ExtraMembers::named_by(|word| names(word) || word.contains('_') && names(&word.replace('_', " ")))
    }

    /// Returns the tokens of the context window, as the provider counts.
    pub(super) fn context_window(&self) -> Option<u64> {
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
            "max_seq_len (",
            "n_ctx (",
            "exceeds the limit of ",
            "model maximum context length: ",
            "batch size: ",
            "context length is ",
            "context length of ",
            "context length of only ",
            "context length (",
            "context window of ",
            "context size (",
            "max_model_len of ",
            "must be <= ",
            "must have less than ",
            "model with ",
            " > ",
        ];
        self.reported_window.or_else(|| after.iter().find_map(|phrase| number_after(&self.text, phrase)))
    }

    /// Returns the tokens of the input, as the provider counts.
    pub(super) fn input_tokens(&self) -> Option<u64> {
        if self.window_overflow().is_some() {
            return None;
        }
        let before = [
            " in the messages",
            " of text input",
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
            "(requested: ",
            "requested about ",
            "prompt tokens (",
            "for this model (",
            "keep the first ",
            "n_keep (",
            "you requested ",
            "given: ",
            "at least ",
        ];
        self.reported_input
            .or_else(|| before.iter().find_map(|phrase| number_before(&self.text, phrase)))
            .or_else(|| after.iter().find_map(|phrase| number_after(&self.text, phrase)))
    }
}

impl ErrorSignals {
    /// Returns the tokens of the input, computed from the window and the reported overflow.
    pub(super) fn input_from_overflow(&self, window: u64) -> Option<u64> {
        self.window_overflow().filter(|_| window > 0).map(|more| window.saturating_add(more))
    }

    /// Returns the tokens of the input, given the size of the window. Returns `None` if the reported number is only a
    /// lower bound: an engine that stops counting once the answer does not fit reports "at least" a number that leaves
    /// one token less than requested.
    pub(super) fn input_for_window(&self, window: u64) -> Option<u64> {
        if let Some(input) = self.input_from_overflow(window) {
            return Some(input);
        }
        let least = |input: u64| input <= window && self.text.contains(&format!("at least {input}"));
        self.input_tokens().filter(|input| !least(*input))
    }
}

/// Returns the HTTP status that an error object states: in `code`, `status` or `http_code`, or by its type; 500
/// otherwise.
pub(super) fn in_band_status(body: &[u8]) -> u16 {
    let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let error = value.get("error").filter(|error| error.is_object()).unwrap_or(&value);
    let stated = ["code", "status", "http_code", "status_code"].into_iter().find_map(|name| {
        let status = match error.get(name)? {
            Value::Number(number) => u16::try_from(number.as_u64()?).ok()?,
            Value::String(text) => text.parse().ok()?,
            _ => return None,
        };
        (400..600).contains(&status).then_some(status)
    });
    let kind = || error.get("type").and_then(Value::as_str).unwrap_or_default();
    stated.unwrap_or_else(|| if CLIENT_ERROR_TYPES.contains(&kind()) { 400 } else { 500 })
}

/// Types of error objects that blame the request.
const CLIENT_ERROR_TYPES: [&str; 6] = [
    "BadRequestError",
    "BadRequest",
    "UnprocessableEntityError",
    "invalid_request_error",
    "invalid_request",
    "validation_error",
];

/// Collects the strings and codes of an error object, down to the depth of [`MAX_DEPTH`].
fn collect_strings(value: &Value, text: &mut String, depth: u8) {
    match value {
        Value::String(sentence) => {
            text.push_str(sentence);
            text.push('\n');
        }
        Value::Object(members) if depth < MAX_DEPTH => {
            members.values().for_each(|value| collect_strings(value, text, depth + 1))
        }
        Value::Array(items) if depth < MAX_DEPTH => {
            items.iter().for_each(|value| collect_strings(value, text, depth + 1))
        }
        _ => {}
    }
}

/// Returns true if a word is a field name, or a path that begins with a field name.
pub(super) fn is_field(word: &str) -> bool {
    let root = word.split(['.', '[']).next().unwrap_or_default();
    is_path(word) && CLIENT_FIELDS.contains(&root)
}

/// Returns true for a path such as `messages[2].content`, which cannot contain a secret or a sentence.
fn is_path(param: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']');
    !param.is_empty() && param.len() <= 80 && param.bytes().all(plain)
}

fn contains_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

/// Returns the first position at which `word` is not a part of a longer word.
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
        parse_number(rest.get(..digits)?)
    })
}

fn number_before(text: &str, phrase: &str) -> Option<u64> {
    text.match_indices(phrase).find_map(|(at, _)| {
        let rest = text.get(..at)?;
        let digits = rest.bytes().rev().take_while(|byte| byte.is_ascii_digit() || *byte == b',').count();
        parse_number(rest.get(rest.len() - digits..)?)
    })
}

/// Parses digits with optional thousands separators.
fn parse_number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}
