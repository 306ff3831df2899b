//! One line: a request with its name. The body is proven to be a JSON object and handed on as it stands.

use super::mistake::LineError;
use super::{BOM, MOST_CUSTOM_ID, Urls};
use memchr::memmem;
use penstock_wire::json;
use std::borrow::Cow;

/// One request of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLine<'a> {
    /// What its owner calls it.
    pub custom_id: Cow<'a, str>,
    /// What it asks: one of those that it may.
    pub url: &'static str,
    /// Its body, a JSON object, as it stands in the line.
    pub body: &'a [u8],
}

/// The fields of a line, as they stand in it.
#[derive(Default)]
struct Found<'a> {
    custom_id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    url: Option<&'a [u8]>,
    body: Option<&'a [u8]>,
}

/// A line without its end, and without what an editor put before the first.
#[must_use]
pub fn bare(line: &[u8], first: bool) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if first { line.strip_prefix(BOM).unwrap_or(line) } else { line }
}

/// Reads one line, without its end, that may ask one of `urls`.
///
/// # Errors
/// The first mistake in it, of no line number.
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
    // Most bodies never say the word, neither plainly nor in escapes: those are not looked at again.
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

/// What stands between the quotes, if it is a string.
fn quoted(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    json::unescape_lossy(quoted(value)?)
}

/// A value by its kind.
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

/// A short word that may be repeated to whoever wrote it.
fn shown(text: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:[]".contains(&byte);
    (!text.is_empty() && text.len() <= 64 && text.bytes().all(plain)).then_some(text)
}
