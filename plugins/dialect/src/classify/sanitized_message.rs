//! Sanitized error message of a provider, for the client and the log.
//!
//! Each word is checked: only common words of technical English, names of the protocol and numbers remain. Of these, every
//! word that occurs in the request is removed, except common words of error messages.

use super::field_names::protocol_path;
use super::inline_media::is_inline_media;
use super::message_numbers::{is_identifying_number, is_in_number_list, is_number_list};
use super::vocabulary;
use penstock_json_scan::json;
use serde_json::Value;
use std::collections::HashSet;

/// Maximum number of bytes of an error body that are read.
const MAX_BODY_BYTES: usize = 64 << 10;
/// Maximum number of characters that are read of a message, and that are passed on.
const MAX_SOURCE_CHARS: usize = 600;
const MAX_MESSAGE_CHARS: usize = 300;
/// Maximum total bytes of the texts in a request. For a larger request nothing is compared, and no message is passed
/// on.
const MAX_REQUEST_TEXT_BYTES: usize = 1 << 20;
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

/// Returns the sanitized message of an error body; `None` if no word of it remains.
pub(super) fn sanitize(body: &[u8], request: &[u8]) -> Option<String> {
    let message = provider_message(body)?;
    let texts = request_texts(request)?;
    let texts = RequestTexts::new(&texts, request);
    let mut words: Vec<&str> = Vec::new();
    let flat = without_brackets(&message);
    let all: Vec<&str> = flat.split_whitespace().collect();
    for (index, word) in all.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| all.get(before)).copied().unwrap_or_default();
        if is_safe_word(word, &texts)
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

/// Returns the start of the message in a body.
fn provider_message(body: &[u8]) -> Option<String> {
    let body = body.get(..body.len().min(MAX_BODY_BYTES))?;
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(value) => find_message(&value, 0)?,
        Err(_) => std::str::from_utf8(body).ok()?.to_owned(),
    };
    let message = inner_message(&message).unwrap_or(message);
    let is_text = !message.trim_start().starts_with(['<', '{', '[']) && !message.contains("Traceback");
    is_text.then(|| message.chars().take(MAX_SOURCE_CHARS).collect())
}

/// Returns the message of the inner error, if another gateway has put an error as JSON or as a Python dictionary into
/// its own message.
fn inner_message(message: &str) -> Option<String> {
    let start = message.find('{')?;
    let inner = message.get(start..)?;
    if let Ok(value) = serde_json::from_str::<Value>(inner) {
        return find_message(&value, 0);
    }
    let (_, rest) = inner.split_once("'message': '")?;
    rest.split_once('\'').map(|(message, _)| message.to_owned())
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
            let message = MESSAGE_NAMES
                .iter()
                .filter_map(|name| members.get(*name))
                .find_map(|value| find_message(value, depth + 1))?;
            Some(match members.get("loc").and_then(field_path) {
                Some(path) => format!("{path}: {message}"),
                None => message,
            })
        }
        Value::Array(items) if depth < 4 => items.iter().find_map(|value| find_message(value, depth + 1)),
        _ => None,
    }
}

/// Members that contain the message, or the object with the message, in the order in which they are tried.
const MESSAGE_NAMES: [&str; 9] =
    ["error", "detail", "message", "msg", "errors", "error_message", "error_msg", "reason", "description"];

/// Returns the path given as a list, such as `["body", "messages", 0, "role"]`, without the first element, which names
/// the part of the request.
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

/// Removes text in braces, and text in brackets that contains an assignment or more numbers than a range: it consists of
/// values, not of words.
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

/// Members at the top of a request whose values are words of an API and no free text.
const WORD_MEMBERS: &[&str] = &[
    "background",
    "encoding_format",
    "lang_code",
    "language",
    "output_format",
    "quality",
    "reasoning_effort",
    "response_format",
    "size",
    "stream_format",
    "style",
    "task_type",
    "voice",
];
/// Maximum bytes of such a value.
const MAX_WORD_BYTES: usize = 32;

/// Returns the texts of a request in lower case, one per line; `None` if they are too long to compare. The names of
/// members at the top are no texts, and neither are the words in [`WORD_MEMBERS`].
fn request_texts(request: &[u8]) -> Option<String> {
    let mut out = String::new();
    let (mut at, mut depth) = (0, 0_usize);
    let mut member: &[u8] = b"";
    while let Some(found) = request.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        depth = depth_after(depth, request.get(at..start).unwrap_or_default());
        let Some(end) = json::string_end(request, start) else { break };
        at = end;
        let inside = request.get(start + 1..end - 1).unwrap_or_default();
        let is_key = request.get(end..).unwrap_or_default().trim_ascii_start().first() == Some(&b':');
        if depth == 1 && is_key && is_word(inside) {
            member = inside;
            continue;
        }
        let is_of_api = WORD_MEMBERS.iter().any(|name| name.as_bytes() == member) && is_word(inside);
        if depth == 1 && !is_key && is_of_api {
            continue;
        }
        if is_inline_media(inside) {
            continue;
        }
        if out.len() + inside.len() > MAX_REQUEST_TEXT_BYTES {
            return None;
        }
        push_text(inside, &mut out);
    }
    Some(out)
}

/// Returns the depth of JSON after a text between two strings.
fn depth_after(depth: usize, between: &[u8]) -> usize {
    between.iter().fold(depth, |depth, byte| match byte {
        b'{' | b'[' => depth + 1,
        b'}' | b']' => depth.saturating_sub(1),
        _ => depth,
    })
}

/// Returns true for a single word.
fn is_word(text: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= MAX_WORD_BYTES && text.iter().all(is_part)
}

/// Returns the keys of all objects of a JSON document, escaped as they are.
fn object_keys(json: &[u8]) -> HashSet<&[u8]> {
    let mut keys = HashSet::new();
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let start = at + found;
        let Some(end) = json::string_end(json, start) else { break };
        at = end;
        if json.get(json::skip_space(json, end)) == Some(&b':') {
            keys.extend(json.get(start + 1..end - 1));
        }
    }
    keys
}

/// Appends the text inside a JSON string. JSON inside it, such as the arguments of a call, may escape letters once more.
fn push_text(inside: &[u8], out: &mut String) {
    let text = json::unescape_lossy(inside).unwrap_or_default();
    out.push_str(&text.to_lowercase());
    out.push('\n');
    if text.contains("\\u") {
        let units = text.split("\\u").skip(1).filter_map(|rest| rest.get(..4));
        let units = units.filter_map(|digits| u16::from_str_radix(digits, 16).ok());
        let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(' '));
        out.extend(letters.flat_map(char::to_lowercase));
        out.push('\n');
    }
}

/// Returns true for a letter of a script that has no blanks between words: Thai, Lao, Burmese, Khmer, Chinese and
/// Japanese.
pub(super) fn is_unspaced(letter: char) -> bool {
    matches!(
        letter,
        '\u{0e00}'..='\u{0eff}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{2e80}'..='\u{312f}'
            | '\u{31a0}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff66}'..='\u{ff9f}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// Returns true if a word of the message may be passed on.
fn is_safe_word(word: &str, texts: &RequestTexts<'_>) -> bool {
    let core = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    if core.is_empty() {
        return word.chars().count() <= 3 && !word.contains('/');
    }
    let lower = core.to_lowercase();
    if protocol_path(core) == Some(core) {
        return is_plain_word(word, core);
    }
    let is_number = core.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b','));
    let is_known = is_number
        || vocabulary::is_common(&lower)
        || core
            .chars()
            .all(|letter| is_unspaced(letter) || letter.is_ascii_punctuation() || !letter.is_alphabetic())
        || texts.has_key(core);
    is_plain_word(word, core) && (is_neutral(&lower) || is_known && !texts.contain(&lower))
}

/// Returns the start of a path up to a name that is not of the protocol.
fn known_start(word: &str) -> Option<&str> {
    let core = word.trim_matches(|letter: char| !letter.is_alphanumeric());
    core.contains(['.', '[']).then(|| protocol_path(core)).flatten()
}

/// Returns true for a common word, or for such words joined by slashes.
pub(super) fn is_neutral(word: &str) -> bool {
    let is_common = |word: &str| word.len() <= 20 && NEUTRAL_WORDS.contains(&format!(" {word} "));
    word.split('/').all(is_common)
}

/// Returns true for a word, a number or the name of a field that cannot identify a place, a person or a secret.
fn is_plain_word(word: &str, core: &str) -> bool {
    let length = core.chars().count();
    let field = protocol_path(core) == Some(core);
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
    let mixed = digits && length > 4 && !is_size(core);
    let is_common = !odd && !word.starts_with('/') && is_neutral(&core.to_lowercase());
    field || is_common || !(odd || address || host || dotted || mixed || length > 32)
}

/// Returns true for the width and height of an image, such as `1024x768`.
fn is_size(word: &str) -> bool {
    let is_side =
        |side: &str| (1..=5).contains(&side.len()) && side.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('x').is_some_and(|(width, height)| is_side(width) && is_side(height))
}

/// Maximum digits of a number that is passed on. A longer one may be that of an account.
const MAX_NUMBER_DIGITS: usize = 10;

/// Texts of a request, in lower case.
struct RequestTexts<'t> {
    text: &'t str,
    /// Words of at least [`MIN_PART_LETTERS`] bytes, so that a word of a message can be looked up without a pass over
    /// the text.
    words: HashSet<&'t str>,
    /// Keys of the request's objects.
    keys: HashSet<&'t [u8]>,
}

/// Minimum bytes of a part of a word that is compared with the request.
const MIN_PART_LETTERS: usize = 4;

impl<'t> RequestTexts<'t> {
    fn new(text: &'t str, request: &'t [u8]) -> Self {
        let words = text.split(|letter: char| !letter.is_alphanumeric());
        let words = words.filter(|word| word.len() >= MIN_PART_LETTERS).collect();
        Self { text, words, keys: object_keys(request) }
    }

    /// Returns true if an object of the request has this key.
    fn has_key(&self, word: &str) -> bool {
        self.keys.contains(word.as_bytes())
    }

    /// Returns true if a word repeats the texts of the request. A word of at least [`MIN_PART_LETTERS`] bytes repeats
    /// them if it occurs in them, or if one of their words of that size is a part of it; a smaller word, if it equals
    /// one of their words. A word with letters beyond ASCII repeats them if any three consecutive letters of it occur in
    /// them; two are enough in a script without blanks, because the word may be a whole sentence there.
    fn contain(&self, word: &str) -> bool {
        if !word.is_ascii() {
            let letters: Vec<char> = word.chars().collect();
            let occurs = |part: &[char]| self.text.contains(&part.iter().collect::<String>());
            let is_pair = |pair: &[char]| pair.iter().copied().all(is_unspaced) && occurs(pair);
            return letters.windows(3.min(letters.len())).any(occurs) || letters.windows(2).any(is_pair);
        }
        if word.len() >= MIN_PART_LETTERS {
            return self.text.contains(word) || self.has_word_inside(word);
        }
        let edge = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
        self.text.match_indices(word).any(|(at, _)| {
            let before = self.text.get(..at).and_then(|text| text.chars().next_back());
            let after = self.text.get(at + word.len()..).and_then(|text| text.chars().next());
            edge(before) && edge(after)
        })
    }

    /// Returns true if a word of the texts is a part of this one.
    fn has_word_inside(&self, word: &str) -> bool {
        let ends = |start: usize| start + MIN_PART_LETTERS..=word.len();
        (0..word.len())
            .flat_map(|start| ends(start).map(move |end| start..end))
            .any(|part| word.get(part).is_some_and(|part| self.words.contains(part)))
    }
}
