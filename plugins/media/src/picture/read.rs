//! Parser of images in a provider's answer, as slices of the body.

use super::base64;
use bytes::Bytes;
use penstock_contract::{Fault, FaultKind, Picture, PictureSource};
use penstock_wire::json::{self, Inside};

/// Limit on the bytes of a URL that is fetched.
const MOST_URL: usize = 8 << 10;

/// Reads `{"data":[{"b64_json"|"url"|…}]}` or `{"images":[…]}`.
///
/// # Errors
/// Returns `Malformed`, or `InBand` for an error in a successful answer.
pub(super) fn pictures(body: &Bytes) -> Result<Vec<Picture>, Fault> {
    let malformed = || Fault::new(FaultKind::Malformed);
    let mut list = None;
    let mut members = json::members(body);
    while let Some((key, value)) = members.next_named() {
        match &*key {
            "error" if !matches!(value, b"null" | b"\"\"") => return Err(Fault::new(FaultKind::InBand)),
            "data" | "images" => list = list.or(Some(value)),
            _ => {}
        }
    }
    let list = list.filter(|_| members.is_whole()).ok_or_else(malformed)?;
    let mut found = Vec::new();
    let mut elements = json::elements(list);
    for range in elements.by_ref() {
        let element = list.get(range).unwrap_or_default();
        found.push(picture(body, element).ok_or_else(malformed)?);
    }
    if elements.is_whole() && !found.is_empty() { Ok(found) } else { Err(malformed()) }
}

/// Reads one image: a string, or an object with one of several members.
fn picture(body: &Bytes, element: &[u8]) -> Option<Picture> {
    if element.first() == Some(&b'"') {
        return Some(Picture { source: source(text(body, element)?, false)?, revised_prompt: None });
    }
    let (mut found, mut revised_prompt) = (None, None);
    let mut members = json::members(element);
    while let Some((key, value)) = members.next_named() {
        if value.first() != Some(&b'"') {
            continue;
        }
        match &*key {
            "b64_json" | "base64" | "b64" | "image" | "url" if value.len() > 2 => {
                // An inline image takes precedence over a URL.
                let source = source(text(body, value)?, key == "url")?;
                if !matches!((&found, &source), (Some(_), PictureSource::Url(_))) {
                    found = Some(source);
                }
            }
            "revised_prompt" => {
                let sound = json::inside(value.get(1..value.len() - 1)?) != Inside::Unsound;
                revised_prompt = sound.then(|| body.slice_ref(value));
            }
            _ => {}
        }
    }
    Some(Picture { source: found?, revised_prompt })
}

/// Returns the content of a JSON string: a slice, unless it has escapes.
fn text(body: &Bytes, string: &[u8]) -> Option<Bytes> {
    let inner = string.get(1..string.len().checked_sub(1)?)?;
    match json::inside(inner) {
        Inside::Plain => Some(body.slice_ref(inner)),
        Inside::Escaped => Some(Bytes::from(json::unescape(inner)?.into_owned())),
        Inside::Unsound => None,
    }
}

/// Returns a URL, if it looks like one or is in a member for URLs (`named`), else base64 data.
fn source(text: Bytes, named: bool) -> Option<PictureSource> {
    let inline = text.starts_with(b"data:");
    if text.starts_with(b"https://") || text.starts_with(b"http://") || (named && !inline) {
        let url = std::str::from_utf8(&text).ok()?;
        return (url.len() <= MOST_URL).then(|| PictureSource::Url(url.into()));
    }
    let inside = base64::inside(text);
    if base64::is_canonical(&inside) {
        return Some(PictureSource::Base64(inside));
    }
    Some(PictureSource::Base64(base64::encode(&base64::decode(&inside)?)))
}
