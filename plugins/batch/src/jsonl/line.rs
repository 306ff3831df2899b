//! Parser of one line: a request with its `custom_id`. The body is checked to be a JSON object and returned unchanged.

use super::mistake::LineError;
use super::{BOM, MOST_CUSTOM_ID, Urls};
use memchr::memmem;
use penstock_wire::json;
use std::borrow::Cow;

/// Request of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLine<'a> {
    /// Identifier that the client chose.
    pub custom_id: Cow<'a, str>,
    /// API path of the request, one of the allowed ones.
    pub url: &'static str,
    /// Request body, a JSON object, as it is in the line.
    pub body: &'a [u8],
}

/// Raw fields of a line.
#[derive(Default)]
struct Found<'a> {
    custom_id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    body: Option<&'a [u8]>,
}

/// Returns a line without its line break, and without a byte order mark if it is the first.
#[must_use]
pub fn bare(line: &[u8], first: bool) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if first { line.strip_prefix(BOM).unwrap_or(line) } else { line }
}

/// Parses one line, without its line break; `urls` are the allowed paths.
///
/// # Errors
/// Returns the first error of the line, without a line number.
pub fn line(bytes: &[u8], urls: Urls) -> Result<InputLine<'_>, LineError> {
    if simdutf8::basic::from_utf8(bytes).is_err() {
        return Err(LineError::new("invalid_utf8", None, "expected text in UTF-8"));
    }
    let found = fields(bytes)?;
    let custom_id = custom_id(need(found.custom_id, "custom_id")?)?;
    method(need(found.method, "method")?)?;
    let url = url(need(found.url, "url")?, urls)?;
    let body = need(found.body, "body")?;
    body_is_sound(body)?;
    Ok(InputLine { custom_id, url, body })
}

fn fields(bytes: &[u8]) -> Result<Found<'_>, LineError> {
    let not_json = || {
        let message = "expected a JSON object on one line, but this is not JSON";
        LineError::new("invalid_json_line", None, message)
    };
    let text = json::trim(bytes);
    if text.first() != Some(&b'{') {
        let whole = json::value_end(text, 0) == Some(text.len());
        let other =
            || LineError::new("not_an_object", None, format!("expected a JSON object, got {}", kind(text)));
        return Err(if whole { other() } else { not_json() });
    }
    let mut found = Found::default();
    let mut wrong = None;
    let mut members = json::members(text);
    while let Some((name, value)) = members.next_pair() {
        if let Err(mistake) = found.take(name, value) {
            wrong.get_or_insert(mistake);
        }
    }
    if !members.is_whole() {
        return Err(not_json());
    }
    wrong.map_or(Ok(found), Err)
}

impl<'a> Found<'a> {
    fn take(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), LineError> {
        let (place, known) = match &*json::unescape_lossy(name).unwrap_or_default() {
            "custom_id" => (&mut self.custom_id, "custom_id"),
            "method" => (&mut self.method, "method"),
            "url" => (&mut self.url, "url"),
            "body" => (&mut self.body, "body"),
            other => {
                let named = shown(other).map_or_else(|| "another".to_owned(), |name| format!("\"{name}\""));
                let message = format!("expected custom_id, method, url and body only, got {named}");
                return Err(LineError::new("unknown_field", None, message));
            }
        };
        match place.replace(value) {
            None => Ok(()),
            Some(_) => {
                Err(LineError::new("repeated_field", Some(known), "expected it once, got it more than once"))
            }
        }
    }
}

fn need<'a>(value: Option<&'a [u8]>, name: &'static str) -> Result<&'a [u8], LineError> {
    value.ok_or_else(|| LineError::new("missing_field", Some(name), "expected, but it is missing"))
}

fn custom_id(value: &[u8]) -> Result<Cow<'_, str>, LineError> {
    let wrong = |message: String| Err(LineError::new("invalid_custom_id", Some("custom_id"), message));
    let Some(escaped) = quoted(value) else {
        return wrong(format!("expected a string, got {}", kind(value)));
    };
    let Some(id) = json::unescape(escaped) else {
        return wrong("expected whole characters, got half of a surrogate pair".to_owned());
    };
    if id.is_empty() {
        return wrong("expected at least one character, got none".to_owned());
    }
    if id.len() > MOST_CUSTOM_ID {
        return wrong(format!("expected at most {MOST_CUSTOM_ID} bytes, got {}", id.len()));
    }
    Ok(id)
}

fn method(value: &[u8]) -> Result<(), LineError> {
    if value == b"\"POST\"" || text(value).as_deref() == Some("POST") {
        return Ok(());
    }
    let got = text(value).and_then(|text| shown(&text).map(|text| format!("\"{text}\"")));
    let got = got.unwrap_or_else(|| kind(value).to_owned());
    Err(LineError::new("invalid_method", Some("method"), format!("expected \"POST\", got {got}")))
}

fn url(value: &[u8], urls: Urls) -> Result<&'static str, LineError> {
    let text = text(value);
    let known = |text: &str| urls.iter().copied().find(|known| *known == text);
    if let Some(url) = text.as_deref().and_then(known) {
        return Ok(url);
    }
    let got = text.as_deref().and_then(shown).map(|text| format!("\"{text}\""));
    let got = got
        .unwrap_or_else(|| if text.is_some() { "another path".to_owned() } else { kind(value).to_owned() });
    let (last, others) = urls.split_last().unwrap_or((&"", &[]));
    let message = format!("expected {} or {last}, got {got}", others.join(", "));
    Err(LineError::new("invalid_url", Some("url"), message))
}

fn body_is_sound(body: &[u8]) -> Result<(), LineError> {
    if body.first() != Some(&b'{') {
        let message = format!("expected an object, got {}", kind(body));
        return Err(LineError::new("invalid_body", Some("body"), message));
    }
    // Most bodies contain neither "stream" nor escapes of it: those are not parsed again.
    let may = memmem::find(body, b"stream").is_some() || memmem::find(body, b"\\u00").is_some();
    if may && streams(body) {
        let message = "expected false or nothing: lines of a batch are not streamed";
        return Err(LineError::new("stream_not_supported", Some("body.stream"), message));
    }
    Ok(())
}

fn streams(body: &[u8]) -> bool {
    let mut members = json::members(body);
    while let Some((name, value)) = members.next_pair() {
        if value == b"true" && json::unescape_lossy(name).is_some_and(|name| name == "stream") {
            return true;
        }
    }
    false
}

/// Returns the text between the quotes of a JSON string.
fn quoted(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    json::unescape_lossy(quoted(value)?)
}

/// Returns the JSON type of a value.
fn kind(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Returns a short plain word that is safe to repeat in an error message.
fn shown(text: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:[]".contains(&byte);
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(plain)).then_some(text)
}
