//! Parser of one line: a request with its `custom_id`. The body is checked to be a JSON object and returned unchanged.

use super::validation_error::LineError;
use super::{AllowedPaths, BOM, MAX_CUSTOM_ID_BYTES};
use memchr::memmem;
use penstock_json_scan::json;
use std::borrow::Cow;

/// Request of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLine<'a> {
    /// Identifier that the client chose.
    pub custom_id: Cow<'a, str>,
    /// API path of the request, one of the allowed ones.
    pub url: &'static str,
    /// Request body: a JSON object, in the bytes of the line.
    pub body: &'a [u8],
}

/// Members of a line as raw JSON values, not yet validated.
#[derive(Default)]
struct LineFields<'a> {
    custom_id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    body: Option<&'a [u8]>,
}

/// Returns a line without its line break, and without a byte order mark if it is the first line.
#[must_use]
pub fn strip_line_ending(line: &[u8], first: bool) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if first { line.strip_prefix(BOM).unwrap_or(line) } else { line }
}

/// Parses one line, given without its line break; `urls` are the allowed paths.
///
/// # Errors
/// Returns the first error of the line, without a line number.
pub fn parse_line(bytes: &[u8], urls: AllowedPaths) -> Result<InputLine<'_>, LineError> {
    if simdutf8::basic::from_utf8(bytes).is_err() {
        return Err(LineError::new("invalid_utf8", None, "expected text in UTF-8"));
    }
    let found = parse_fields(bytes)?;
    let custom_id = parse_custom_id(require_field(found.custom_id, "custom_id")?)?;
    check_method(require_field(found.method, "method")?)?;
    let url = parse_url(require_field(found.url, "url")?, urls)?;
    let body = require_field(found.body, "body")?;
    check_body(body)?;
    Ok(InputLine { custom_id, url, body })
}

fn parse_fields(bytes: &[u8]) -> Result<LineFields<'_>, LineError> {
    let not_json = || {
        let levels = json::MAX_DEPTH;
        let message = format!(
            "expected a JSON object on one line, but this is not JSON or is nested deeper than {levels} levels"
        );
        LineError::new("invalid_json_line", None, message)
    };
    let text = json::trim(bytes);
    if text.first() != Some(&b'{') {
        let whole = json::value_end(text, 0) == Some(text.len());
        let other = || {
            LineError::new("not_an_object", None, format!("expected a JSON object, got {}", json_type(text)))
        };
        return Err(if whole { other() } else { not_json() });
    }
    let mut found = LineFields::default();
    let mut first_error = None;
    let mut members = json::members(text);
    while let Some((name, value)) = members.next_raw() {
        if let Err(mistake) = found.set_field(name, value) {
            first_error.get_or_insert(mistake);
        }
    }
    if !members.is_complete() {
        return Err(not_json());
    }
    first_error.map_or(Ok(found), Err)
}

impl<'a> LineFields<'a> {
    fn set_field(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), LineError> {
        let (field, known) = match &*json::unescape_lossy(name).unwrap_or_default() {
            "custom_id" => (&mut self.custom_id, "custom_id"),
            "method" => (&mut self.method, "method"),
            "url" => (&mut self.url, "url"),
            "body" => (&mut self.body, "body"),
            other => {
                let named =
                    printable_word(other).map_or_else(|| "another".to_owned(), |name| format!("\"{name}\""));
                let message = format!("expected custom_id, method, url and body only, got {named}");
                return Err(LineError::new("unknown_field", None, message));
            }
        };
        match field.replace(value) {
            None => Ok(()),
            Some(_) => {
                Err(LineError::new("repeated_field", Some(known), "expected it once, got it more than once"))
            }
        }
    }
}

fn require_field<'a>(value: Option<&'a [u8]>, name: &'static str) -> Result<&'a [u8], LineError> {
    value.ok_or_else(|| LineError::new("missing_field", Some(name), "expected, but it is missing"))
}

fn parse_custom_id(value: &[u8]) -> Result<Cow<'_, str>, LineError> {
    let invalid = |message: String| Err(LineError::new("invalid_custom_id", Some("custom_id"), message));
    let Some(escaped) = string_contents(value) else {
        return invalid(format!("expected a string, got {}", json_type(value)));
    };
    let Some(id) = json::unescape(escaped) else {
        return invalid("expected whole characters, got half of a surrogate pair".to_owned());
    };
    if id.is_empty() {
        return invalid("expected at least one character, got none".to_owned());
    }
    if id.len() > MAX_CUSTOM_ID_BYTES {
        return invalid(format!("expected at most {MAX_CUSTOM_ID_BYTES} bytes, got {}", id.len()));
    }
    Ok(id)
}

fn check_method(value: &[u8]) -> Result<(), LineError> {
    if value == b"\"POST\"" || unescape_string(value).as_deref() == Some("POST") {
        return Ok(());
    }
    let got = unescape_string(value).and_then(|text| printable_word(&text).map(|text| format!("\"{text}\"")));
    let got = got.unwrap_or_else(|| json_type(value).to_owned());
    Err(LineError::new("invalid_method", Some("method"), format!("expected \"POST\", got {got}")))
}

fn parse_url(value: &[u8], urls: AllowedPaths) -> Result<&'static str, LineError> {
    let text = unescape_string(value);
    let known = |text: &str| urls.iter().copied().find(|known| *known == text);
    if let Some(url) = text.as_deref().and_then(known) {
        return Ok(url);
    }
    let got = text.as_deref().and_then(printable_word).map(|text| format!("\"{text}\""));
    let got = got.unwrap_or_else(|| {
        if text.is_some() { "another path".to_owned() } else { json_type(value).to_owned() }
    });
    let (last, others) = urls.split_last().unwrap_or((&"", &[]));
    let message = format!("expected {} or {last}, got {got}", others.join(", "));
    Err(LineError::new("invalid_url", Some("url"), message))
}

fn check_body(body: &[u8]) -> Result<(), LineError> {
    if body.first() != Some(&b'{') {
        let message = format!("expected an object, got {}", json_type(body));
        return Err(LineError::new("invalid_body", Some("body"), message));
    }
    // Most bodies contain neither "stream" nor an escaped form of it and need no second parsing.
    let may = memmem::find(body, b"stream").is_some() || memmem::find(body, b"\\u00").is_some();
    if may && is_streaming(body) {
        let message = "expected false or nothing: lines of a batch are not streamed";
        return Err(LineError::new("stream_not_supported", Some("body.stream"), message));
    }
    Ok(())
}

fn is_streaming(body: &[u8]) -> bool {
    let mut members = json::members(body);
    while let Some((name, value)) = members.next_raw() {
        if value == b"true" && json::unescape_lossy(name).is_some_and(|name| name == "stream") {
            return true;
        }
    }
    false
}

/// Returns the text between the quotes of a JSON string; `None` for a value of another type.
fn string_contents(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn unescape_string(value: &[u8]) -> Option<Cow<'_, str>> {
    json::unescape_lossy(string_contents(value)?)
}

/// Returns the JSON type of a value.
fn json_type(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Returns the text if it is short and has no special characters, so that an error message may repeat it.
fn printable_word(text: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:[]".contains(&byte);
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(plain)).then_some(text)
}
