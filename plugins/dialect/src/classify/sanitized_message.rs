//! Sanitized error message of a provider, for the client and the log.
//!
//! Each word is checked. Names of the protocol and common words of error messages remain. Other common words of
//! technical English, numbers, keys of the request and words of scripts without blanks remain if they do not repeat the
//! texts of the request. All other words are removed.

use super::common_words;
use super::field_names::known_path_prefix;
use super::message_numbers::{is_identifying_number, is_in_number_list, is_number_list};
use super::protocol_names::{is_protocol_name, is_protocol_path};
use super::python_error::parse_python_error;
use super::request_echo::QUOTES;
use super::request_texts::{RequestTexts, collect_lowercase_strings, is_unspaced_script};
use serde_json::Value;

/// Maximum number of bytes of an error body that are read.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Maximum number of characters of a message that are read, and that are passed on.
const MAX_SOURCE_CHARS: usize = 600;
const MAX_MESSAGE_CHARS: usize = 300;
/// Replacement for removed words.
const ELLIPSIS: &str = "…";

/// Common words of error messages, which reveal nothing about a request.
const NEUTRAL_WORDS: &str = " a about accept accepted actual after all allowed also an and any are argument \
    arguments array as assistant at audio available bad base64 be been before being body boolean both but by call \
    calls can cannot character characters choice code complete completion contain contains content context \
    conversation could count current default did document documents does duplicate each either empty encountered \
    engine error errors exactly exceed exceeded exceeds exist exists expected failed false field fields file first \
    following for format formats found from function functions given got greater had has have header higher id if \
    image images in index input instructions invalid is it item items its json key keys language languages last \
    least length less limit list long longer lower many max maximum may message messages method min minimum minute \
    missing model more most must name names no non none not null number object of on one only optional or order \
    other out output parameter parameters parse part parts please prompt property provided provider quality queries \
    query range reached reason received request required response result results role roles same schema seconds \
    sequence set short should size sizes small smaller so some speed string style supported supports system template \
    text than that the their then there this to token tokens too tool tools true two type types unexpected unknown \
    unsupported use used user valid value values voice voices was were when which while with within without would \
    you your ";

/// Returns the sanitized message of an error body. `None` if the body has no message in plain text, if fewer than two
/// words of it remain, or if the request is too long to compare.
pub(super) fn sanitize_message(body: &[u8], request: &[u8]) -> Option<String> {
    let message = provider_message(body)?;
    let texts = collect_lowercase_strings(request)?;
    let texts = RequestTexts::new(&texts, request);
    let mut words: Vec<&str> = Vec::new();
    let flat = without_brackets(&message);
    let all: Vec<&str> = flat.split_whitespace().collect();
    for (index, word) in all.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| all.get(before)).copied().unwrap_or_default();
        if *word != ELLIPSIS
            && (is_safe_word(word, &texts) || is_protocol_word(before, word))
            && !is_in_number_list(&all, index)
            && !is_identifying_number(before, word)
        {
            words.push(word);
            continue;
        }
        words.extend(known_start(word));
        if words.last() != Some(&ELLIPSIS) {
            words.push(ELLIPSIS);
        }
    }
    while words.last() == Some(&ELLIPSIS) && words.len() > 1 {
        words.pop();
    }
    if words.iter().filter(|word| **word != ELLIPSIS).count() < 2 {
        return None;
    }
    Some(join_words(&words))
}

/// Joins words with blanks, up to the maximum length of a message.
fn join_words(words: &[&str]) -> String {
    let mut sentence = String::new();
    for word in words {
        if sentence.chars().count() + word.chars().count() > MAX_MESSAGE_CHARS {
            sentence.push_str(ELLIPSIS);
            break;
        }
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
    }
    sentence
}

/// Start of the link that pydantic adds to the message of an error.
const PYDANTIC_HELP: &str = "For further information visit";

/// Returns the first [`MAX_SOURCE_CHARS`] characters of the message in a body; `None` for HTML, JSON and stack traces.
fn provider_message(body: &[u8]) -> Option<String> {
    let body = body.get(..body.len().min(MAX_BODY_BYTES))?;
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(value) => find_message(&value, 0)?,
        Err(_) => std::str::from_utf8(body).ok()?.to_owned(),
    };
    let message = inner_message(&message).unwrap_or(message);
    let message = message.split(PYDANTIC_HELP).next().unwrap_or_default();
    let start = without_status(message.trim_start());
    let is_list = start.starts_with('[') && !start.starts_with("[]");
    let is_text = !is_list && !start.starts_with('{') && !is_markup(start) && !message.contains("Traceback");
    is_text.then(|| start.chars().take(MAX_SOURCE_CHARS).collect())
}

/// Returns a message without the HTTP status that some hosts put before it, as in `<400> Invalid value`.
fn without_status(message: &str) -> &str {
    let inside = message.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let is_status = |status: &str| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
    inside.filter(|(status, _)| is_status(status)).map_or(message, |(_, rest)| rest.trim_start())
}

/// Returns true for a text that starts like HTML or XML: with a tag, a comment or a declaration.
fn is_markup(text: &str) -> bool {
    let is_tag = |letter: char| letter.is_ascii_alphabetic() || matches!(letter, '/' | '!' | '?');
    text.strip_prefix('<').is_some_and(|rest| rest.starts_with(is_tag))
}

/// Returns the message of the inner error, if another gateway has put an error as JSON or as a Python dictionary into
/// its own message.
fn inner_message(message: &str) -> Option<String> {
    let start = message.find('{')?;
    let inner = message.get(start..)?;
    let mut values = serde_json::Deserializer::from_str(inner).into_iter::<Value>();
    if let Some(Ok(value)) = values.next() {
        let rest = inner.get(values.byte_offset()..).unwrap_or_default();
        let is_end = rest.chars().all(|letter| !letter.is_alphanumeric());
        return if is_end || value.get("error").is_some_and(Value::is_object) {
            find_message(&value, 0)
        } else {
            None
        };
    }
    let (message, location) = parse_python_error(inner)?;
    Some(with_path(field_path(&location), message))
}

/// Puts the path of a field before a message.
fn with_path(path: Option<String>, message: String) -> String {
    match path {
        Some(path) => format!("{path}: {message}"),
        None => message,
    }
}

/// Returns the error of the provider behind another gateway, which has it in `metadata.raw`.
fn raw_message(members: &serde_json::Map<String, Value>, depth: u8) -> Option<String> {
    let raw = members.get("metadata")?.get("raw")?.as_str()?;
    match serde_json::from_str::<Value>(raw) {
        Ok(value) => find_message(&value, depth + 1),
        Err(_) => Some(raw.to_owned()),
    }
}

/// Returns the message in any known error format. If the format states the path of the field separately, the path comes
/// first.
fn find_message(value: &Value, depth: u8) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Object(members) if depth < 4 => {
            if let Some(message) = raw_message(members, depth) {
                return Some(message);
            }
            let messages =
                MESSAGE_NAMES.iter().filter_map(|name| find_message(members.get(*name)?, depth + 1));
            let message = first_sentence(messages)?;
            Some(with_path(members.get("loc").and_then(field_path), message))
        }
        Value::Array(items) if depth < 4 => items.iter().find_map(|value| find_message(value, depth + 1)),
        _ => None,
    }
}

/// Returns the first message that has more than [`MAX_LABEL_WORDS`] words, or else the first one: some engines state a
/// code or a status, such as `Bad Request`, in a member before the message.
fn first_sentence(mut messages: impl Iterator<Item = String>) -> Option<String> {
    let first = messages.next()?;
    let is_sentence = |message: &String| message.split_whitespace().nth(MAX_LABEL_WORDS).is_some();
    if is_sentence(&first) { Some(first) } else { messages.find(is_sentence).or(Some(first)) }
}

/// Maximum number of words of a code or of the name of a status.
const MAX_LABEL_WORDS: usize = 3;

/// Members that contain the message, or the object with the message, in the order in which they are tried.
const MESSAGE_NAMES: [&str; 10] = [
    "error",
    "detail",
    "message",
    "msg",
    "errors",
    "error_message",
    "error_msg",
    "reason",
    "description",
    "error_description",
];

/// Returns the path given as a list, such as `["body", "messages", 0, "role"]`, in dotted form; without the first
/// element if it is `body` or `query`, the part of the request. `None` if the value is no such list.
fn field_path(loc: &Value) -> Option<String> {
    let mut path = String::new();
    for (at, step) in loc.as_array()?.iter().enumerate() {
        match step {
            Value::String(name) if at == 0 && matches!(name.as_str(), "body" | "query") => {}
            Value::String(name) if path.is_empty() => path.push_str(name),
            Value::String(name) => path = format!("{path}.{name}"),
            Value::Number(index) => path = format!("{path}[{index}]"),
            _ => return None,
        }
    }
    (!path.is_empty()).then_some(path)
}

/// Replaces text in braces by an ellipsis, and text in brackets if it contains `=`, `{` or `'`, or is a list of
/// numbers: such text consists of values, not of words.
fn without_brackets(message: &str) -> String {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut rest = message;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '[' if depth == 0
                && after
                    .split(']')
                    .next()
                    .is_some_and(|inside| inside.contains(['=', '{', '\'']) || is_number_list(inside)) =>
            {
                rest = after.split_once(']').map_or("", |(_, rest)| rest);
                out.push_str(" \u{2026} ");
                continue;
            }
            _ if depth > 0 => {}
            _ if letter.is_control() || is_bidirectional(letter) => out.push(' '),
            _ => out.push(letter),
        }
        if letter == '}' && depth == 0 {
            out.push_str(" \u{2026} ");
        }
        rest = after;
    }
    out
}

/// Returns true for an invisible character that changes the writing direction of a text.
fn is_bidirectional(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Returns true if a word of the message may be passed on.
fn is_safe_word(word: &str, texts: &RequestTexts<'_>) -> bool {
    let core = word_core(word);
    if core.is_empty() {
        return word.chars().count() <= 3 && !word.contains(['/', '$']);
    }
    let lower = core.to_lowercase();
    if is_known_path(core, &lower) {
        return is_plain_word(word, core);
    }
    if let Some((name, value)) = core.split_once('=') {
        return is_safe_assignment(name, value) && !texts.may_contain_word(&value.to_lowercase());
    }
    let is_number = core.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    let is_known = is_number
        || is_size(core)
        || common_words::is_common_word(&lower)
        || core.chars().all(|letter| {
            is_unspaced_script(letter) || letter.is_ascii_punctuation() || !letter.is_alphabetic()
        })
        || texts.has_key(core);
    is_plain_word(word, core) && (is_neutral_word(&lower) || is_known && !texts.may_contain_word(&lower))
}

/// Returns true for a path that consists of names of the protocol, in any case; `lower` is the path in lower case.
fn is_known_path(path: &str, lower: &str) -> bool {
    known_path_prefix(path) == Some(path) || known_path_prefix(lower) == Some(lower)
}

/// Returns true for a name of the protocol, or a path of such names: one that cannot be a word of a text, or one in
/// quotes or after a colon. `before` is the word before it. Such names remain even if the request contains them.
fn is_protocol_word(before: &str, word: &str) -> bool {
    let core = word_core(word);
    if !word.chars().all(|letter| letter.is_ascii_alphanumeric() || NAME_PUNCTUATION.contains(&letter)) {
        return false;
    }
    if core.contains('.') {
        return is_protocol_path(core);
    }
    let is_quoted =
        word.starts_with(QUOTES) && word.trim_end_matches(['.', ',', ';', ':', ')']).ends_with(QUOTES);
    is_protocol_name(core) && (is_distinct_name(core) || is_quoted || before.ends_with(':'))
}

/// Characters in and around a name of the protocol.
const NAME_PUNCTUATION: [char; 18] = [
    '_', '.', ',', ';', ':', '[', ']', '(', ')', '!', '\'', '"', '`', '-', '\u{2018}', '\u{2019}',
    '\u{201c}', '\u{201d}',
];

/// Returns true for a name that is written like no word of a text, such as `tool_use` or `maxItems`.
fn is_distinct_name(name: &str) -> bool {
    name.contains('_') || name.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Returns a word without the punctuation around it, and without the plural ending of `image(s)`. A path retains the
/// bracket after its last index.
fn word_core(word: &str) -> &str {
    let core = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    let core = core.strip_suffix("(s").unwrap_or(core);
    let start = word.find(core).unwrap_or_default();
    let bracketed = word.get(start..start + core.len() + 1).filter(|core| core.ends_with(']'));
    bracketed.filter(|_| core.matches('[').count() > core.matches(']').count()).unwrap_or(core)
}

/// Returns true if a word of the form `name=value` has the name of a parameter, and a number or a constant of Python.
fn is_safe_assignment(name: &str, value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_number = !digits.is_empty()
        && digits.len() <= MAX_NUMBER_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_value = is_number || matches!(value, "True" | "False" | "None" | "true" | "false" | "null");
    is_value && known_path_prefix(name) == Some(name) && !is_identifying_number(name, value)
}

/// Returns the start of a path up to the first name that is not of the protocol; `None` if the word is no path, or if
/// its first name is not of the protocol.
fn known_start(word: &str) -> Option<&str> {
    let core = word_core(word);
    core.contains(['.', '[']).then(|| known_path_prefix(core)).flatten()
}

/// Returns true for a common word of error messages, in lower case, or for such words joined by slashes.
pub(super) fn is_neutral_word(word: &str) -> bool {
    let is_common = |word: &str| word.len() <= 20 && NEUTRAL_WORDS.contains(&format!(" {word} "));
    word.split('/').all(is_common)
}

/// Returns true for a word, a number or the name of a field that cannot identify a place, a person or a secret.
fn is_plain_word(word: &str, core: &str) -> bool {
    let length = core.chars().count();
    let lower = core.to_lowercase();
    let field = is_known_path(core, &lower);
    let odd = word.contains(['=', '@', '\\', '<', '>', '#', '&', '%', '$', '^', '~', '|', '*'])
        && !matches!(word, "<=" | ">=" | "<" | ">" | "=");
    let address = core.contains("://") || core.contains('/') || word.starts_with('/') || core.contains(':');
    let digit_count = core.bytes().filter(u8::is_ascii_digit).count();
    let is_numeric = core.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    let number = is_numeric && digit_count <= MAX_NUMBER_DIGITS && length <= MAX_NUMBER_DIGITS + 3;
    let digits = digit_count > 0;
    let dotted = core.matches('.').count() > 0 && !number;
    let host = core.eq_ignore_ascii_case("localhost") || core.starts_with("sk-");
    if number {
        return core.matches('.').count() < 2;
    }
    let mixed = digits && length > 4 && !is_size(core) && !common_words::is_common_base_form(&lower);
    let is_common = !odd && !word.starts_with('/') && is_neutral_word(&lower);
    field || is_common || !(odd || address || host || dotted || mixed || length > 32)
}

/// Returns true for the width and height of an image, such as `1024x768`.
fn is_size(word: &str) -> bool {
    let is_side =
        |side: &str| (1..=5).contains(&side.len()) && side.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('x').is_some_and(|(width, height)| is_side(width) && is_side(height))
}

/// Maximum digits of a number that is passed on. A longer number may identify an account.
const MAX_NUMBER_DIGITS: usize = 10;
