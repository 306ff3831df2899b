//! Signals in an error body: its codes, and known phrases and numbers in its message.

use super::field_names::known_path_prefix;
use super::number_phrases::{INPUT_WORDS, OUTPUT_MAXIMUM_PHRASES};
use super::phrases::{
    BUSY_PHRASES, CLIENT_VISIBLE_FIELDS, CONTEXT_WINDOW_PHRASES, ENGINE_CRASH_PHRASES, EXCESS_PHRASES,
    INVALID_TOOL_ARGUMENTS_PHRASES, RATE_PHRASES, RECEIVED_VALUE_PREFIXES, UNPROCESSABLE_REQUEST_PHRASES,
    VALUE_RULE_PHRASES,
};
use super::unknown_member;
use serde_json::Value;

/// Maximum number of bytes of an error body that are read.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Maximum depth at which strings of an error are read. The path of a field, for example, is a list in an object in a
/// list in up to three objects.
const MAX_DEPTH: u8 = 8;

/// Signals of an error body. Texts and codes are in lower case.
pub(super) struct ErrorSignals {
    /// Member `param` as the provider wrote it, if it is a plain path.
    pub(super) param: Option<String>,
    /// Texts of the error (such as message, type and code), in lower case, see [`collect_strings`].
    pub(super) text: String,
    /// Values of the members for codes and types, in lower case.
    codes: Vec<String>,
    /// True if the error names the member that it refuses, even if it is not a known member.
    pub(super) is_member_named: bool,
    /// True if the request itself limits the generated tokens to 0 and the error names the 0 as refused.
    pub(super) is_zero_requested: bool,
    /// Tokens of the context window (`n_ctx`), and of the input (`n_prompt_tokens`), if the error has these members.
    pub(super) reported_window: Option<u64>,
    pub(super) reported_input: Option<u64>,
}

impl ErrorSignals {
    /// Parses the body of an error: an error object in any known format, or plain text.
    pub(super) fn parse(body: &[u8]) -> Self {
        let body = body.get(..body.len().min(MAX_BODY_BYTES)).unwrap_or_default();
        let mut value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        // Some APIs put the object with the error into an array.
        if let Some(inner) = value.get_mut(0).filter(|inner| inner.get("error").is_some()) {
            value = inner.take();
        }
        let stated = [value.get("error"), value.get("detail")].into_iter().flatten();
        // If the member is a text, it may be only a code, with the message in another member.
        let error = stated.into_iter().next().filter(|error| !error.is_string()).unwrap_or(&value);
        let mut text = String::new();
        collect_strings(error, &mut text, 0);
        if value.is_null() {
            text = String::from_utf8_lossy(body).into_owned();
        }
        text = text.to_lowercase();
        let number = |name: &str| error.get(name).and_then(Value::as_u64);
        let param = error.get("param").and_then(Value::as_str).filter(|param| is_field_path(param));
        Self {
            param: param.map(str::to_owned),
            is_member_named: unknown_member::names_refused_member(error, &text),
            text,
            codes: [error, &value].into_iter().flat_map(stated_codes).collect(),
            is_zero_requested: false,
            reported_window: number("n_ctx"),
            reported_input: number("n_prompt_tokens"),
        }
    }

    /// Returns true if the request does not fit into the context window.
    pub(super) fn is_context_window_exceeded(&self) -> bool {
        let about = self.stated_input_and_limit().is_some() || self.contains_any(CONTEXT_WINDOW_PHRASES);
        let is_other = || self.is_about_output_maximum() || self.contains_any(RATE_PHRASES);
        self.tokens_over_window().is_some() || (about && !is_other())
    }

    /// Returns true if the error is about the model's maximum of output tokens, which does not depend on the input.
    fn is_about_output_maximum(&self) -> bool {
        self.contains_any(OUTPUT_MAXIMUM_PHRASES) && !self.contains_any(INPUT_WORDS)
    }

    /// Returns true if an engine failed because of the length of the input. A phrase about the context window alone is
    /// not enough, because a failed engine may mention the window for other reasons. A message without a number of
    /// input tokens counts only if the input may have exceeded the window: `may_exceed` is called with the window that
    /// the message states, or `None`.
    pub(super) fn is_input_length_failure(&self, may_exceed: impl FnOnce(Option<u64>) -> bool) -> bool {
        let is_stated = self.tokens_over_window().is_some() || self.stated_input_and_limit().is_some();
        let is_vetoed =
            [RATE_PHRASES, ENGINE_CRASH_PHRASES, BUSY_PHRASES].iter().any(|words| self.contains_any(words));
        let about = || self.contains_any(CONTEXT_WINDOW_PHRASES) && self.contains_any(EXCESS_PHRASES);
        let is_possible = || self.input_tokens().is_some() || may_exceed(self.context_window());
        !is_vetoed && (is_stated || about() && is_possible())
    }

    /// Returns true if a member for codes has this value.
    pub(super) fn has_code(&self, code: &str) -> bool {
        self.codes.iter().any(|stated| stated == code)
    }

    /// Returns true if an engine failed because of a conversation, content or value in the request that it cannot
    /// process.
    pub(super) fn is_unprocessable_request(&self) -> bool {
        let about = self.contains_any(UNPROCESSABLE_REQUEST_PHRASES) || self.has_refused_value();
        about && !self.contains_any(ENGINE_CRASH_PHRASES)
    }

    /// Returns true if the error names a field, the values that the field may have, and another value that the engine
    /// received. The limit on generated tokens does not count, because the engine may have computed its value.
    fn has_refused_value(&self) -> bool {
        let is_refused = |name: &&&str| {
            word_positions(&self.text, name).any(|at| {
                let rest = self.text.get(at + name.len()..).unwrap_or_default();
                let rest =
                    rest.lines().next().unwrap_or_default().trim_start_matches(['`', '\'', '"', ':', ' ']);
                let is_rule = VALUE_RULE_PHRASES.iter().any(|rule| rest.starts_with(rule));
                is_rule && RECEIVED_VALUE_PREFIXES.iter().any(|phrase| rest.contains(phrase))
            })
        };
        CLIENT_VISIBLE_FIELDS.iter().filter(|name| !name.ends_with("_tokens")).any(|name| is_refused(&name))
    }

    /// Returns true if an engine failed because the requested limit on generated tokens is above the engine's maximum.
    pub(super) fn is_output_cap_failure(&self) -> bool {
        let is_vetoed = || {
            [RATE_PHRASES, ENGINE_CRASH_PHRASES, BUSY_PHRASES].iter().any(|words| self.contains_any(words))
        };
        self.max_output_tokens().is_some() && !is_vetoed()
    }

    /// Returns true if an engine failed because of the arguments of a tool call.
    pub(super) fn is_tool_arguments_failure(&self) -> bool {
        self.contains_any(INVALID_TOOL_ARGUMENTS_PHRASES) && !self.contains_any(ENGINE_CRASH_PHRASES)
    }

    /// Returns true if the text contains one of the phrases.
    pub(super) fn contains_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| contains_phrase(&self.text, word))
    }

    /// Returns the field at fault: the path in `param`, or else the first field that the text names, since later ones
    /// may be named as advice.
    pub(super) fn blamed_field(&self) -> Option<String> {
        let first = || {
            let named =
                CLIENT_VISIBLE_FIELDS.iter().filter_map(|name| Some((find_word(&self.text, name)?, *name)));
            named.min().map(|(_, name)| name.to_owned())
        };
        let param = self.param.as_deref().and_then(known_path_prefix);
        param.map(str::to_owned).or_else(first)
    }
}

/// Members in which an error repeats the refused value, or output of the model that the engine could not parse.
const ECHO_MEMBERS: [&str; 5] = ["input", "input_value", "ctx", "value", "failed_generation"];
/// Members for codes and types.
const CODE_MEMBERS: [&str; 5] = ["code", "type", "status", "error_type", "error_code"];

/// Returns the codes and types of an error object, in lower case.
fn stated_codes(error: &Value) -> impl Iterator<Item = String> + '_ {
    CODE_MEMBERS.iter().filter_map(|name| Some(error.get(name)?.as_str()?.to_lowercase()))
}

/// Appends the strings of an error object, one per line, down to the depth of [`MAX_DEPTH`] and without the members in
/// [`ECHO_MEMBERS`]. Lines with a [`STATEMENT_SEPARATOR`] separate the objects of a list, such as several validation
/// errors.
pub(super) fn collect_strings(value: &Value, text: &mut String, depth: u8) {
    match value {
        Value::String(sentence) => {
            text.push_str(sentence);
            text.push('\n');
        }
        Value::Object(members) if depth < MAX_DEPTH => {
            let own = members.iter().filter(|(name, _)| !ECHO_MEMBERS.contains(&name.as_str()));
            own.for_each(|(_, value)| collect_strings(value, text, depth + 1))
        }
        Value::Array(items) if depth < MAX_DEPTH => {
            for item in items {
                separate_statement(item, text);
                collect_strings(item, text, depth + 1);
                separate_statement(item, text);
            }
        }
        _ => {}
    }
}

/// Control character between the objects of a list of errors.
pub(super) const STATEMENT_SEPARATOR: char = '\u{1e}';

fn separate_statement(item: &Value, text: &mut String) {
    if item.is_object() {
        text.push(STATEMENT_SEPARATOR);
        text.push('\n');
    }
}

/// Returns true if a word is one of [`CLIENT_VISIBLE_FIELDS`], or a path that begins with one.
pub(super) fn is_client_visible_field(word: &str) -> bool {
    let root = word.split(['.', '[']).next().unwrap_or_default();
    is_field_path(word) && CLIENT_VISIBLE_FIELDS.contains(&root)
}

/// Returns true for a path such as `messages[2].content`, which cannot contain a secret or a sentence.
pub(super) fn is_field_path(param: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']');
    !param.is_empty() && param.len() <= 80 && param.bytes().all(plain)
}

pub(super) fn contains_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

/// Returns the first position at which the text has `word`, and not as a part of a longer word.
pub(super) fn find_word(text: &str, word: &str) -> Option<usize> {
    word_positions(text, word).next()
}

/// Returns the positions at which the text has `word`, and not as a part of a longer word.
pub(super) fn word_positions<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let alone = move |at: &usize| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !part(before) && !part(bytes.get(at + word.len()))
    };
    text.match_indices(word).map(|(at, _)| at).filter(alone)
}

/// Maximum bytes of an ASCII phrase that must be a whole word, because it could be a part of an unrelated one, as `oom`
/// is of "bloom".
const MAX_WHOLE_WORD_BYTES: usize = 5;

/// Returns true if the text contains the phrase. An ASCII phrase of at most [`MAX_WHOLE_WORD_BYTES`] bytes must be a
/// whole word.
pub(super) fn contains_phrase(text: &str, phrase: &str) -> bool {
    if phrase.len() > MAX_WHOLE_WORD_BYTES || !phrase.is_ascii() {
        return text.contains(phrase);
    }
    let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphabetic);
    text.match_indices(phrase).any(|(at, _)| {
        let before = text.get(..at).and_then(|text| text.chars().next_back());
        let after = text.get(at + phrase.len()..).and_then(|text| text.chars().next());
        !is_letter(before) && !is_letter(after)
    })
}
